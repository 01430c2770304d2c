# Everything sets itself up: a fresh machine needs Python 3.10 or later with its venv module, and make.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
BIN := $(VENV)/bin

.PHONY: help run test check lint types test-all test-cluster test-lowest test-pythons bench accuracy docs clean

help:             ## show this list
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.ready-to-run  ## search 48 nodes of a simulated cluster
	$(BIN)/tuner optimize --nodes 48 --budget 40

test: $(VENV)/.ready-to-test  ## run the fast tests
	$(BIN)/python -m pytest -m "not slow and not cluster"

check: lint types test-all  ## lint, types and all tests but those of a cluster

lint: $(VENV)/.ready-to-test  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-to-test  ## strict types
	$(BIN)/mypy

test-all: $(VENV)/.ready-to-test  ## run all tests
	$(BIN)/python -m pytest -m "not cluster"

test-cluster: $(VENV)/.ready-to-test  ## install and start a real Slurm of four nodes, run what wants one, stop it
	$(BIN)/python -m tests.slurm_cluster
	$(BIN)/python -m pytest -m cluster

bench: $(VENV)/.ready-to-run  ## speed, as figures and ratios of one run
	$(BIN)/python benchmarks/enumeration.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/search.py --quick

accuracy: $(VENV)/.ready-to-test  ## fail if an estimate of the corpus is worse than recorded
	$(BIN)/python -m benchmarks.accuracy --check

docs: $(VENV)/.ready-to-run  ## write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

clean:            ## remove the environment and what tests leave
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.ready-to-run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable .
	touch $@

# torch comes first and by itself, so that nothing that depends on it chooses another version.
$(VENV)/.ready-to-test: $(VENV)/.ready-to-run
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) torch==2.13.0
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[dev,jobs,track]"
	touch $@
