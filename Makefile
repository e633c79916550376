# Each target makes .venv itself when it is missing. PYTHON chooses the interpreter it is made from.
PYTHON ?= python3
BIN := .venv/bin
DEMO_EPOCHS ?= 10

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check bench docs clean

help:
	@echo "make demo    train a small CNN on real scans with NumPy (sets up what it needs)"
	@echo "make test    set up all four backends and run the tests"
	@echo "make test-slow  the long end-to-end tests, which make test leaves out"
	@echo "make check   ruff, pyright and the documentation, strictly"
	@echo "make bench   the benchmarks of docs/performance.md"
	@echo "make docs    the documentation as a site in site/"
	@echo "make setup   only set up: .venv with all four backends and the tools"

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv

# The demo's environment: the package with its base dependencies, and scikit-learn for its scans.
.venv/.demo: pyproject.toml | .venv/pyvenv.cfg
	$(BIN)/pip install --quiet -e '.[examples]'
	@touch $@

# The developers' environment: the pinned frameworks and tools.
.venv/.dev: requirements/dev.txt pyproject.toml | .venv/pyvenv.cfg
	$(BIN)/pip install --quiet -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps -e .
	@touch $@ .venv/.demo

setup: .venv/.dev

demo: .venv/.demo
	$(BIN)/unisync train cnn --data digits --backend numpy --epochs $(DEMO_EPOCHS)

# One math thread for each of the two test processes: BLAS threads that outnumber the cores make tests many times slower.
test test-slow: export OMP_NUM_THREADS = 1

test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-slow: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/mkdocs build --strict --quiet

bench: .venv/.dev
	$(BIN)/python -m benchmarks

docs: .venv/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site .pytest_cache .ruff_cache .hypothesis
