"""One module per tool, each with its declaration in `TOOL`; `ottla.cli.catalogue` lists them."""
