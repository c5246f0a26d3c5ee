# Everything below happens in .venv, which `make setup` fills with the versions of constraints.txt.
#   make figures ARGS="01-losses-and-gradients --force"    arguments for `spml figures`
#   make test    ARGS="tests/test_losses.py -k gr"         arguments for pytest
#   make setup   PYTHON=python3.13                         another Python, after `make clean`

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

BIN := .venv/bin
# The stamp is written last and holds the folder: an installation that was interrupted, or one that was moved (its
# scripts point to the old place), is made again from nothing.
STAMP := .venv/.installed-for
MADE_FOR := $(shell cat $(STAMP) 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup figures test lint format benchmark clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv and install the pinned dependencies (about 6 GB on x86_64 Linux)
	@echo "Ready: $(BIN)/spml --help, $(BIN)/jupyter lab"

figures: $(STAMP) ## run every notebook without a screen and write figures/
	@$(BIN)/spml figures --jobs $(JOBS) $(ARGS)

# One thread for each test process: the processes are what fills the cores.
test: lint ## lint, then run the tests
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

lint: $(STAMP) ## check style and formatting, notebooks too
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: $(STAMP) ## measure speed and memory
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove .venv and caches; runs/ and figures/ stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find spml_core tests benchmarks notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

ifneq ($(MADE_FOR),$(CURDIR))
.PHONY: $(STAMP)
endif
.PRECIOUS: $(STAMP) # else make deletes it when it is interrupted, and "unfinished" is forgotten
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
	    echo "Python 3.11 to 3.14 is needed, $(PYTHON) is another one: name it, as in make setup PYTHON=python3.13"; exit 1; }
	@echo "Installing into .venv: about 6 GB on x86_64 Linux (torch with CUDA), 2 to 5 minutes plus the download."
	@echo "This happens once, and again when pyproject.toml or constraints.txt change."
	@$(if $(filter-out $(CURDIR),$(MADE_FOR)),,[ -x $(BIN)/pip ] ||) $(PYTHON) -m venv --clear .venv
	@echo unfinished > $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[notebooks,cluster,explore,offline-weights,dev]'
	@pwd -P > $(STAMP)
