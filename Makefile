# Two commands do everything, in a fresh clone, on a machine that has python3 (3.11 or later):
#   make demo   five questions answered for networks trained here, in one HTML report
#   make test   every check that a change must pass
PYTHON ?= python3
BIN := .venv/bin
# Files are compiled when they are first imported: most of torch never is.
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt

.PHONY: demo test lint wheel-test docs clean

demo: .venv/core
	$(BIN)/assay demo

# A worker for each core, and one thread in each: the tests' matrices are small, and threads wait for each other
# where another job has a core. The tests of a file stay together; files go to workers in the order of their names.
test: .venv/dev lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder --durations=10

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What `pip install assay` gives, without extras, does the main job.
wheel-test:
	PYTHON=$(PYTHON) .ci/wheel

docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# torch goes first: with it in place no other package can pull in another build.
.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch
	$(INSTALL) --editable .
	touch $@

.venv/dev: .venv/core
	$(INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv report.html
