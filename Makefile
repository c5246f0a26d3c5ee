# All targets use .venv, in which `make setup` installs the versions in constraints.txt.
#   make figures ARGS="01-losses-and-gradients --force"    arguments for `spml figures`
#   make test    ARGS="tests/test_losses.py -k gr"         arguments for pytest
#   make setup   PYTHON=python3.13                         a different Python, after `make clean`

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
# What is installed; wandb and mlflow are left out, see pyproject.toml.
EXTRAS := notebooks,cluster,explore,export,offline-weights,tensorboard,docs,dev
COMMA := ,

BIN := .venv/bin
# The stamp is written last and contains the folder. An installation that was interrupted or moved (its scripts then point
# to the old place) is therefore redone from scratch.
STAMP := .venv/.installed-for
MADE_FOR := $(shell cat $(STAMP) 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup figures docs test lint format benchmark lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv and install the pinned dependencies (about 6 GB on x86_64 Linux)
	@echo "Ready: $(BIN)/spml --help, $(BIN)/jupyter lab"

figures: $(STAMP) ## run every notebook headless and write figures/
	@$(BIN)/spml figures --jobs $(JOBS) $(ARGS)

# Pages of notebooks show the outputs of `make figures`. Where there are none, the profile smoke makes some in minutes.
docs: $(STAMP) ## build the site with the executed notebooks: build/site/index.html
	@ls runs/notebooks/*.json >/dev/null 2>&1 || $(BIN)/spml figures --profile smoke --jobs $(JOBS)
	@rm -rf build/site docs/api
	@$(BIN)/python -m sphinx -W --keep-going --quiet -c docs -E -d build/doctrees . build/site $(ARGS)
	@echo "site: build/site/index.html"

# One thread per test process, since the processes already fill the cores.
test: lint ## lint, then run the tests
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

lint: $(STAMP) ## check style and formatting, including notebooks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: $(STAMP) ## measure speed and memory
	@$(BIN)/python -m benchmarks $(ARGS)

lock: $(STAMP) ## write requirements.lock, the hashes of what constraints.txt pins
	@$(BIN)/uv pip compile pyproject.toml $(addprefix --extra ,$(subst $(COMMA), ,$(EXTRAS))) --constraint constraints.txt --universal --python-version 3.11 \
	    --generate-hashes --no-build --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean: ## remove .venv, the site and caches, keep runs/ and figures/
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build docs/api *.egg-info
	find spml_core tests benchmarks notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

ifneq ($(MADE_FOR),$(CURDIR))
.PHONY: $(STAMP)
endif
.PRECIOUS: $(STAMP) # otherwise make deletes it when interrupted, and "unfinished" is lost
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
	    echo "Python 3.11 to 3.14 is needed, but $(PYTHON) is a different version. Choose one: make setup PYTHON=python3.13"; exit 1; }
	@echo "Installing into .venv: about 6 GB on x86_64 Linux (torch with CUDA), 2 to 5 minutes plus the download."
	@echo "This happens once, and again after changes of pyproject.toml or constraints.txt."
	@$(if $(filter-out $(CURDIR),$(MADE_FOR)),,[ -x $(BIN)/pip ] ||) $(PYTHON) -m venv --clear .venv
	@echo unfinished > $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@pwd -P > $(STAMP)
