"""One module per tool, each with its declaration in `TOOL`; `ottla.cli.framework.catalogue` lists them."""
