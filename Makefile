# The two commands: `make demo` and `make test`. Each sets up all it needs in .venv.

PYTHON ?= python3
VENV := .venv
# For pip: on Linux, --extra-index-url with PyTorch's index of CPU builds saves gigabytes of CUDA.
PIP_INDEX ?=
BIN := $(VENV)/bin
APART := tests/jax tests/jax_clients tests/torch tests/torch_models tests/graph

.PHONY: demo test test-core test-models lint docs bench clean python compiler

# What pip can't bring is said at once, in a line, and not after minutes of tests.
python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("pebbling needs Python 3.11 or newer; $(PYTHON) is " \
	    + sys.version.split()[0] + ": give another one (make test PYTHON=python3.12)")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	    { echo "$(PYTHON) can't make a virtual environment: install its venv module (apt install python3-venv)"; exit 2; }

compiler:
	@command -v $${CXX:-g++} >/dev/null || command -v clang++ >/dev/null || \
	    { echo "make test needs a C++ compiler for the kernels of torch.compile (apt install g++)"; exit 2; }

$(VENV)/core: pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_INDEX) -e '.[progress]' -c constraints-test.txt
	touch $@

$(VENV)/tests: $(VENV)/core requirements-test.txt constraints-test.txt | compiler
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_INDEX) -r requirements-test.txt -c constraints-test.txt
	touch $@

demo: $(VENV)/core
	$(BIN)/pebbling demo

test: $(VENV)/tests lint
	$(MAKE) --no-print-directory -j2 --output-sync=target test-core test-models
	$(BIN)/python -m pytest --doctest-modules src/pebbling

# The two halves of the tests take about as long, one a core; frameworks have a process of their own.
test-core: $(VENV)/tests
	$(BIN)/python -m pytest $(APART:%=--ignore=%)
	$(BIN)/python -m pytest tests/jax tests/jax_clients

test-models: $(VENV)/tests
	for part in tests/torch tests/torch_models tests/graph; do $(BIN)/python -m pytest $$part || exit 1; done

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
