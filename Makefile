# Two commands for everybody: `make run` (the paper, reproduced) and `make test`.
# Every target first makes .venv with $(PYTHON), 3.11 or later, and installs what is pinned in
# constraints.txt. With another Python than 3.11 some pins may not exist: make CONSTRAINTS= test

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DOCS_STAMP := $(VENV)/installed-docs

.PHONY: help run test calibrate check bench docs clean

help:
	@echo 'make run     reproduce the paper; its page is results/index.html'
	@echo 'make test    run all tests'
	@echo 'make calibrate  run the long tests as well'
	@echo 'make check   lint, format, types, doctests'
	@echo 'make bench   time the engine'
	@echo 'make docs    run the examples of the documentation; the site goes to results/docs/'
	@echo 'make clean   remove .venv and everything made by the above'

# Compiled programs are kept here, not among those of whoever runs this. In tests and documentation
# it is JAX's own cache that keeps them (ours then does nothing): it has their own functions as well.
run test calibrate check docs: export OFFCUT_CACHE := $(CURDIR)/.cache/programs
bench: export OFFCUT_CACHE := off
test calibrate docs: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.cache/jax
test calibrate docs: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.5
# The library compiles its programs with this option (programs/compiled.py); with it the small ones
# around them compile faster as well. XLA stops at a flag that it does not know: make XLA_FLAGS= test
XLA_FLAGS ?= --xla_cpu_use_fusion_emitters=false
run test calibrate check docs: export XLA_FLAGS := $(XLA_FLAGS)

run: $(STAMP)
	$(BIN)/offcut reproduce all --quick -o results

# A process killed while it writes to JAX's cache (a test does so) leaves a torn entry: JAX warns
# and compiles again, and this one warning is not an error.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal \
		-W 'ignore:Error reading persistent compilation cache entry' \
		-W 'ignore:Error writing persistent compilation cache entry' $(PYTEST_ARGS)

calibrate: PYTEST_ARGS += -m 'calibrate or not calibrate'
calibrate: test

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest --doctest-modules src/offcut -q --durations=5

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Every example is executed, whatever is there from an earlier build; -W: a warning is a failure.
# README, CONTRIBUTING and docs/examples are no pages of code cells, and run as tests.
docs: $(DOCS_STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'documentation and not calibrate' \
		tests/test_docs.py tests/test_examples.py
	$(BIN)/python -m sphinx -E -W --keep-going -j 2 -d .cache/doctrees -b html docs results/docs

# Dependency groups need pip 25.1, newer than the one that comes with Python 3.11.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet $(addprefix -c ,$(CONSTRAINTS)) -e '.[plots]' --group dev
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet $(addprefix -c ,$(CONSTRAINTS)) --group docs
	@touch $@

clean:
	rm -rf $(VENV) .cache results .pytest_cache .mypy_cache .ruff_cache build src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
