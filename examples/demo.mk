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

.DEFAULT_GOAL := demo
.PHONY: demo
demo: ## All of the example at once; Ctrl-C ends it
	@if [ -n "$(CLONE)" ]; then $(MAKE) --silent --no-print-directory -C $(ROOT) extras $(if $(EXTRAS),EXTRAS=$(EXTRAS)); fi
	@[ -z "$(MODULE)" ] || $(PYTHON) -c 'import $(MODULE)' 2>/dev/null || \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check '$(PACKAGE)'
	@exec $(PYTHON) demo.py $(ARGS)
