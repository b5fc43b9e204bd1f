# Included by the Makefile of each example. In a clone: `make -C examples/NAME demo`, which sets everything up
# first. In a copy by `ottla examples`, with Ottla installed: `make demo`.

ROOT := $(abspath ../..)
CLONE := $(wildcard $(ROOT)/src/ottla)
PYTHON ?= $(if $(CLONE),$(ROOT)/.venv/bin/python,python3)
# What is installed of Ottla in a clone; what most need, unless an example says something else.
EXTRAS ?=
# A module that the example needs beside Ottla, and the package that brings it.
MODULE ?=
PACKAGE ?=

NEEDED := ottla confluent_kafka $(if $(EXTRAS),,pyspark uvicorn)

.DEFAULT_GOAL := demo
.PHONY: demo
demo: ## All of the example at once; Ctrl-C ends it
	@if [ -n "$(CLONE)" ]; then $(MAKE) --silent --no-print-directory -C $(ROOT) extras $(if $(EXTRAS),EXTRAS=$(EXTRAS)); fi
	@[ -n "$(CLONE)" ] || $(PYTHON) -c 'import sys; from importlib.util import find_spec; \
		sys.exit(not all(map(find_spec, sys.argv[1:])))' $(NEEDED) || { echo \
		"$(PYTHON) lacks Ottla, or what this example needs: pip install 'ottla[$(or $(EXTRAS),streams)]'" >&2; exit 1; }
	@[ -z "$(MODULE)" ] || $(PYTHON) -c 'import $(MODULE)' 2>/dev/null || \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check '$(PACKAGE)'
	@exec $(PYTHON) demo.py $(ARGS)
