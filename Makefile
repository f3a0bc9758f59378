# The two commands: `make demo` and `make test`. Each sets up all it needs in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

$(VENV)/core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[progress,plot]'
	touch $@

$(VENV)/tests: $(VENV)/core requirements-test.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@

demo: $(VENV)/core
	$(BIN)/pebbling demo

test: $(VENV)/tests lint
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --doctest-modules src/pebbling

lint: $(VENV)/tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/tests
	$(BIN)/sphinx-build -W -b html docs docs/_build

bench: $(VENV)/tests
	$(BIN)/python benchmarks/schedules.py

clean:
	rm -rf $(VENV) docs/_build demo
