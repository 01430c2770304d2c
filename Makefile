# Every target creates the environment it needs. Requires make and Python 3.10 or later with venv.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
BIN := $(VENV)/bin
PYTHONS ?= $(or $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[0-9].*/bin/python)),python3.10 python3.11 python3.12 python3.13)
TORCH_FREE := pytest hypothesis pytest-xdist pyyaml
MINUTES ?= 10
SOAKS ?= database slurm
COUNT ?= 20000
# Tests start thousands of processes, each of which would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# Two test processes on two cores: more threads in NumPy and torch would only contend.
test test-slow: export OMP_NUM_THREADS := 1
FAST := -m "not slow and not cluster"

.PHONY: help run test check lint types test-all test-slow test-cluster fuzz soak test-lowest test-pythons bench accuracy hooks docs clean

help:             ## list the targets
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.ready-to-run  ## run a search on a simulated cluster of 48 nodes
	$(BIN)/tuner optimize --nodes 48 --budget 40

test: $(VENV)/.ready-to-test  ## run the fast tests in two processes
	$(BIN)/python -m pytest $(FAST) -n 2 --dist loadfile

check: lint types test-all  ## run lint, types and all tests except the cluster tests

lint: $(VENV)/.ready-to-test  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-to-test  ## check types
	$(BIN)/mypy

test-all: test test-slow  ## run all tests except the cluster tests

test-slow: $(VENV)/.ready-to-test  ## run the slow tests in two processes
	$(BIN)/python -m pytest -m "slow and not cluster" -n 2 --dist loadfile

test-cluster: $(VENV)/.ready-to-test  ## run the cluster tests on a real four-node Slurm, which is installed and started
	$(BIN)/python -m tests.slurm_cluster
	$(BIN)/python -m pytest -m cluster

fuzz: $(VENV)/.ready-to-test  ## fuzz every reader with COUNT damaged files
	$(BIN)/python -m tests.fuzz --count $(COUNT)

soak: $(VENV)/.ready-to-test  ## inject random faults into shared studies on PostgreSQL and on Slurm for MINUTES
	for kind in $(SOAKS); do $(BIN)/python -m tests.soak $$kind --minutes $(MINUTES) || exit 1; done

# Without torch, whose tests are skipped. Old versions of the dependencies warn about each other, so warnings are no errors.
test-lowest: $(VENV)/.ready-to-test  ## run the fast tests with the lowest allowed versions of the dependencies, without torch
	$(BIN)/uv venv --quiet --clear --python $(firstword $(PYTHONS)) .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable . \
		"pytest>=8.3" "hypothesis>=6.120" "pytest-xdist>=3.6" "pyyaml>=6.0.1"
	.venv-lowest/bin/python -m pytest -q -W default $(FAST) -n 2 --dist loadfile

test-pythons: $(VENV)/.ready-to-test  ## run the fast tests on each interpreter in PYTHONS, without torch
	set -e; for python in $(PYTHONS); do \
		$(BIN)/uv venv --quiet --clear --python $$python .venv-python; \
		$(BIN)/uv pip install --quiet --python .venv-python/bin/python --editable . $(TORCH_FREE); \
		.venv-python/bin/python --version; \
		.venv-python/bin/python -m pytest -q $(FAST) -n 2 --dist loadfile; \
	done

bench: $(VENV)/.ready-to-run  ## run the benchmarks
	$(BIN)/python benchmarks/enumeration.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/search.py --quick
	$(BIN)/python benchmarks/log_reading.py

accuracy: $(VENV)/.ready-to-test  ## fail if the estimates for the corpus are worse than recorded
	$(BIN)/python -m benchmarks.accuracy --check

hooks: $(VENV)/.ready-to-test  ## install a pre-commit hook with lint, types and the check of generated pages
	$(BIN)/pre-commit install

docs: $(VENV)/.ready-to-run  ## regenerate the generated pages in docs/
	$(BIN)/python docs/generate.py

clean:            ## remove the environments and caches
	rm -rf $(VENV) .venv-lowest .venv-python .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.ready-to-run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable .
	touch $@

# torch is installed first, so that no dependent package selects another version. Megatron is installed without its
# dependencies, because the tests only build its config classes.
$(VENV)/.ready-to-test: $(VENV)/.ready-to-run
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) torch==2.13.0
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[dev,jobs,track]"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --no-deps megatron-core==0.16.1 megatron-bridge==0.3.1 || \
		echo "Megatron Bridge is not available; the tests of its config classes are skipped"
	touch $@
