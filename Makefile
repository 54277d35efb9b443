# Every target makes what it needs: a virtual environment for the Python it is started with, and the
# packages in it. `make PYTHON=python3.13 test` uses another interpreter, beside the first.
PYTHON ?= python3
VENV := .venv/py$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Thousands of processes are started, which would all compile what they load.
unexport PYTHONDONTWRITEBYTECODE

# Many tests wait for processes: twice as many workers as there are cores keep these busy.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test plain load test-thorough test-all test-browser screenshots check check-page format coverage mutation fuzz fuzz-short chaos chaos-short nginx redis interop interop-short interop-wild fidelity interop-matrix conformance bench bench-page docs newcomer completion clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mcplumb needs Python 3.11 or newer, and $(PYTHON) is not that. Name one that is: make PYTHON=python3.12 ..."; exit 1; }
	@echo "==> $(VENV): creating a virtual environment and installing mcplumb with its development tools"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli]' --group dev
	@touch $@

demo: $(STAMP) ## a tour of what there is, with real servers
	@echo "==> mcplumb demo"
	@$(BIN)/mcplumb demo

test: $(STAMP) ## run the tests, in parallel
	@echo "==> tests, on $$($(BIN)/python --version)"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not thorough'

plain: $(STAMP) ## run a part of the tests without the speed tricks (MCPLUMB_PLAIN=1)
	@echo "==> some tests, without the speed tricks"
	@MCPLUMB_PLAIN=1 $(BIN)/python -m pytest --quiet -n $(WORKERS) --dist worksteal -m 'not thorough' tests/_fast/test_init.py tests/everywhere tests/process

load: $(STAMP) ## load all tests, and so compile what they need, without running any
	@echo "==> loading all tests"
	@found=$$($(BIN)/python -m pytest --collect-only --quiet) || { printf '%s\n' "$$found"; exit 1; }

test-thorough: $(STAMP) ## run the tests that take long, the full products, and all properties with more examples
	@$(BIN)/python -m pytest -m 'thorough and not product'
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'product or hypothesis' --hypothesis-profile thorough

test-all: ## run the tests on every Python of 3.11 and newer that is found
	@$(PYTHON) tools/each_python.py $(MAKE) test

$(VENV)/.browser: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	@touch $@

test-browser: $(VENV)/.browser ## use the page of mcplumb view in Chromium, which root on Debian gets from apt; skipped without; SHORT=1 leaves out the long session
	@echo "==> the page, in a real browser"
	@$(BIN)/python -m tests.browser.chromium $(BIN)/python -m pytest tests/browser $(if $(SHORT),--ignore=tests/browser/test_scale.py)

screenshots: $(VENV)/.browser ## make the pictures of mcplumb view that the docs show (needs Chromium)
	@$(BIN)/python -m tests.browser.chromium $(BIN)/python -m tests.browser.screenshots

check: $(STAMP) ## format, lint, types and layering
	@echo "==> format, lint, types, layering"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python tools/doc_examples.py
	@$(BIN)/python -m pytest -q tests/repo/test_layers.py

# The type checker of the page: a development tool, which the package does not contain.
.page/node_modules/.bin/tsc:
	@npm install --prefix .page --no-audit --no-fund --no-save --loglevel=error typescript@7.0.2

check-page: ## types of the scripts of mcplumb view (needs Node.js, and is skipped without it)
	@if command -v npm >/dev/null; then \
	  echo "==> types of the page" && $(MAKE) --no-print-directory .page/node_modules/.bin/tsc && \
	  .page/node_modules/.bin/tsc --project tools/page.tsconfig.json; \
	else echo "==> types of the page: skipped, there is no npm on the PATH"; fi

format: $(STAMP) ## rewrite the files in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

coverage: $(STAMP) ## show that each module is fully covered by its own tests
	@echo "==> branch coverage of each module by its own test file"
	@$(BIN)/python tools/module_coverage.py

mutation: $(STAMP) ## break rules in the source one by one, and show that a test notices each
	@$(BIN)/python tools/mutation.py

fuzz: $(STAMP) ## fuzz the wire layer with a million inputs and more
	@$(BIN)/python -m fuzz

fuzz-short: $(STAMP) ## the same in short, with the same inputs each time
	@$(BIN)/python -m fuzz --inputs 60000 --seed 1

chaos: $(STAMP) ## make servers fail in every way, 5,500 times, and count what is lost, wrong, late or left behind
	@$(BIN)/python -m chaos
	@$(BIN)/python -m chaos replicas

chaos-short: $(STAMP) ## the same in short, with the same choices each time
	@$(BIN)/python -m chaos --closes 60 --faults 100 --seed 1
	@$(BIN)/python -m chaos replicas --clients 20 --calls 1500 --every 75 --seed 1

nginx: $(STAMP) ## make sure that there is an nginx for the tests of the pages for operators, which root on Debian gets from apt
	@$(BIN)/python -m tests.kit.debian nginx

redis: $(STAMP) ## make sure that there is a redis-server for the tests of replicas
	@$(BIN)/python -m tests.kit.redis_server

interop: $(STAMP) ## the official SDKs use a server of ours, and our client uses servers made with others (without Node.js, Go, Rust or Java, some are skipped)
	@$(BIN)/python -m tests.interop.environments
	@$(BIN)/python -m tests.interop.toolchains
	@$(BIN)/python -m pytest -n $(WORKERS) tests/interop --ignore=tests/interop/wild

interop-short: $(STAMP) ## of that, the official SDKs' clients with a server of ours over stdio, some visits through the bridge, and some rows of the matrix
	@$(BIN)/python -m pytest -n $(WORKERS) -k 'stdio and test_official_clients or short or test_table or test_page or explained' tests/interop/test_official_clients.py tests/interop/bridge tests/interop/matrix

fidelity: $(STAMP) ## measure what crosses our bridge and others, and write the table of the docs (needs Node.js)
	@$(BIN)/python -m tests.interop.environments
	@$(BIN)/python -m tests.interop.bridge.table

interop-matrix: $(STAMP) ## measure who works with whom, and write the matrix of the docs (SDKs without their toolchain, Node.js too, keep their rows)
	@$(BIN)/python -m tests.interop.environments
	@$(BIN)/python -m tests.interop.toolchains
	@$(BIN)/python -m tests.interop.matrix.page $(ROWS)

interop-wild: $(STAMP) ## servers, clients and bridges of third parties from npm and PyPI (needs Node.js); what cannot be installed is skipped
	@$(BIN)/python -m tests.interop.wild.software
	@$(BIN)/python -m pytest -n $(WORKERS) tests/interop/wild

conformance: $(STAMP) ## run the official conformance suite against a server and a client of ours (needs Node.js)
	@$(BIN)/python -m conformance.run

bench: $(STAMP) ## measure servers, clients and start-up against floors; PEERS=1 installs and measures other libraries, too
	@$(BIN)/python -m bench $(if $(PEERS),--peers)

$(VENV)/.bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

bench-page: $(VENV)/.bench ## write what the last run measured into the documentation
	@$(BIN)/python -m bench page .bench/results.json

$(VENV)/.docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@

docs: $(VENV)/.docs ## write the generated pages anew, and make a site of all pages, below .site
	@$(BIN)/python -m tools.generate_docs
	@$(BIN)/sphinx-build -q -W --keep-going -n docs .site
	@echo "==> .site/index.html"

newcomer: $(STAMP) ## walk a newcomer's path, from a built wheel in a fresh virtual environment
	@$(BIN)/python -m tests.newcomer.path

completion: $(STAMP) ## press Tab in bash, zsh and fish, which have to be installed
	@$(BIN)/python tools/check_completion.py

clean: ## remove what the targets made
	@rm -rf .venv .site .fuzz .bench .interop .conformance .page .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
