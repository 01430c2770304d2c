# Everything sets itself up: a fresh machine needs Python 3.10 or later with its venv module, and make.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
BIN := $(VENV)/bin
PYTHONS ?= $(or $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[0-9].*/bin/python)),python3.10 python3.11 python3.12 python3.13)
TORCH_FREE := pytest hypothesis pytest-xdist pyyaml
MINUTES ?= 10
SOAKS ?= database slurm
COUNT ?= 20000
# Tests run two at a time, each on one core: threads of NumPy and torch beside them only wait for one another.
test test-slow: export OMP_NUM_THREADS := 1
FAST := -m "not slow and not cluster"

.PHONY: help run test check lint types test-all test-slow test-cluster fuzz soak test-lowest test-pythons bench accuracy hooks docs clean

help:             ## show this list
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.ready-to-run  ## search 48 nodes of a simulated cluster
	$(BIN)/tuner optimize --nodes 48 --budget 40

test: $(VENV)/.ready-to-test  ## run the fast tests, two at a time
	$(BIN)/python -m pytest $(FAST) -n 2 --dist loadfile

check: lint types test-all  ## lint, types and all tests but those of a cluster

lint: $(VENV)/.ready-to-test  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-to-test  ## strict types
	$(BIN)/mypy

test-all: test test-slow  ## run all tests but those of a cluster

test-slow: $(VENV)/.ready-to-test  ## run the slow tests, two at a time
	$(BIN)/python -m pytest -m "slow and not cluster" -n 2 --dist loadfile

test-cluster: $(VENV)/.ready-to-test  ## install and start a real Slurm of four nodes, run what wants one, stop it
	$(BIN)/python -m tests.slurm_cluster
	$(BIN)/python -m pytest -m cluster

fuzz: $(VENV)/.ready-to-test  ## give COUNT damaged files to every reader
	$(BIN)/python -m tests.fuzz --count $(COUNT)

soak: $(VENV)/.ready-to-test  ## random faults on shared studies, with a PostgreSQL and with a Slurm, for MINUTES
	for kind in $(SOAKS); do $(BIN)/python -m tests.soak $$kind --minutes $(MINUTES) || exit 1; done

# Without torch: the tests that want it are skipped. Warnings of earlier libraries about one another are not ours to mend.
test-lowest: $(VENV)/.ready-to-test  ## run the fast tests with the lowest versions that pyproject.toml allows, without torch
	$(BIN)/uv venv --quiet --clear --python $(firstword $(PYTHONS)) .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable . \
		"pytest>=8.3" "hypothesis>=6.120" "pytest-xdist>=3.6" "pyyaml>=6.0.1"
	.venv-lowest/bin/python -m pytest -q -W default $(FAST) -n 2 --dist loadfile

test-pythons: $(VENV)/.ready-to-test  ## run the fast tests without torch on each of PYTHONS
	set -e; for python in $(PYTHONS); do \
		$(BIN)/uv venv --quiet --clear --python $$python .venv-python; \
		$(BIN)/uv pip install --quiet --python .venv-python/bin/python --editable . $(TORCH_FREE); \
		.venv-python/bin/python --version; \
		.venv-python/bin/python -m pytest -q $(FAST) -n 2 --dist loadfile; \
	done

bench: $(VENV)/.ready-to-run  ## speed, as figures and ratios of one run
	$(BIN)/python benchmarks/enumeration.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/search.py --quick
	$(BIN)/python benchmarks/log_reading.py

accuracy: $(VENV)/.ready-to-test  ## fail if an estimate of the corpus is worse than recorded
	$(BIN)/python -m benchmarks.accuracy --check

hooks: $(VENV)/.ready-to-test  ## run lint, types and the check of generated pages on every commit
	$(BIN)/pre-commit install

docs: $(VENV)/.ready-to-run  ## write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

clean:            ## remove the environment and what tests leave
	rm -rf $(VENV) .venv-lowest .venv-python .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.ready-to-run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable .
	touch $@

# torch comes first and by itself, so that nothing that depends on it chooses another version. Of Megatron only config
# classes are built, which need none of what it requires on a GPU.
$(VENV)/.ready-to-test: $(VENV)/.ready-to-run
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) torch==2.13.0
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[dev,jobs,track]"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --no-deps megatron-core==0.16.1 megatron-bridge==0.3.1 || \
		echo "Megatron Bridge cannot be had: the tests that build its config classes are skipped"
	touch $@
