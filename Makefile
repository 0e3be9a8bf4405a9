# Two commands do everything, in a fresh clone, on a machine that has python3 (3.11 or later):
#   make demo   five questions answered for networks trained here, in one HTML report
#   make test   every check that a change must pass
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint docs clean

demo: .venv/installed
	$(BIN)/assay demo

# One thread: the tests' matrices are small, and two threads wait for each other where another job has a core.
test: .venv/installed lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=10

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# torch goes first: with it in place no other package can pull in another build.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv report.html
