# Everything sets itself up: a machine needs make and Python >= 3.12 with venv, nothing else.
# make PYTHON=/path/to/python ... chooses the interpreter; make PYTEST_ARGS=... test passes arguments on.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test bench lint docs notebooks clean set-up-again

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed
CANDIDATES := python3.13 python3.14 python3.12 python3 python
PYTEST_ARGS ?=
WORKERS ?= 2

PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install -qq -c constraints.txt
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))

# A virtual environment does not survive being moved, nor its interpreter's going.
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && cat $(CORE) 2>/dev/null),$(CURDIR))
$(CORE): set-up-again
endif

help: ## show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' Makefile

demo: $(CORE) ## simulate comparisons, recover their structure and show the gains
	@$(BIN)/bayes-ecc demo

test: export OMP_NUM_THREADS ?= 1
test: export MPLBACKEND = Agg
test: $(DEV) ## run the tests and the examples of the documentation (BAYES_ECC_FULL=1: at full size)
	@$(BIN)/python -m pytest -q -n $(WORKERS) $(PYTEST_ARGS)

bench: $(CORE) ## measure speed and memory
	@$(BIN)/python -m benchmarks

# A type checker does not follow the mapping of models/, so it is shown the package as it is installed.
lint: $(DEV) ## check style, format and types
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@installed=$$(mktemp -d) && trap 'rm -rf "$$installed"' EXIT && \
	cp -R bayes_ecc "$$installed" && cp -R models "$$installed/bayes_ecc/models" && \
	root=$$(pwd) && cd "$$installed" && "$$root/$(BIN)/python" -m mypy \
	    --config-file "$$root/pyproject.toml" --cache-dir "$$root/.mypy_cache" -p bayes_ecc

docs: export OMP_NUM_THREADS ?= 1
docs: $(DEV) ## build the documentation in docs/_build/html, offline
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Built docs/_build/html/index.html."

notebooks: $(DEV) ## execute the notebooks and keep their results (minutes; NOTEBOOKS="01 04": some)
	@$(BIN)/python notebooks/execute.py $(NOTEBOOKS)

clean: ## remove builds and caches; .venv stays
	@rm -rf build dist docs/_build docs/api docs/articles *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name $(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# Every python on the PATH is tried, not the first of a name alone: a version manager's shim may
# exist without a Python behind it.
$(CORE): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '$(SUITABLE)' 2>/dev/null; then \
	    found=; \
	    try() { if [ -z "$$found" ] && "$$1" -c '$(SUITABLE)' </dev/null >/dev/null 2>&1; then found=$$1; fi; }; \
	    if [ -n "$(PYTHON)" ]; then try "$(PYTHON)"; else \
	        IFS=:; for name in $(CANDIDATES); do for folder in $$PATH; do try "$$folder/$$name"; done; done; unset IFS; \
	    fi; \
	    if [ -z "$$found" ]; then \
	        echo "No Python >= 3.12 with venv and ensurepip found; tried: $(or $(PYTHON),$(CANDIDATES))." >&2; \
	        echo "Install one (Debian and Ubuntu: also python3-venv), or name it: make PYTHON=/path/to/python ..." >&2; \
	        exit 1; \
	    fi; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing bayes_ecc into $(VENV) ($$($(BIN)/python --version)); this takes a minute or two the first time."
	@$(INSTALL) -e .
	@echo '$(CURDIR)' > $@

# Dependency groups need pip 25.1.
$(DEV): $(CORE)
	@echo "Installing what the tests and checks need."
	@$(PIP) install -qq --upgrade 'pip>=25.1'
	@$(INSTALL) -e '.[nuts]' --group dev
	@touch $@
