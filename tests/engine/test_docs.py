"""The public names, what importing them loads, and the examples in the docstrings."""

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pebbling.engine import numpy as engine
from pebbling.engine.numpy import table

RENAMED = {"in1d", "trapz", "row_stack", "unique_values", "matvec", "vecmat", "cumulative_sum", "cumulative_prod"}
MODULES = ["tree", "numpy.table", "numpy.transform"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, monkeypatch):
    monkeypatch.setattr(table, "TABLE", dict(table.TABLE))
    module = importlib.import_module(f"pebbling.engine.{name}")
    result = doctest.testmod(module, extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0


def test_public_names():
    derivatives = {"grad", "value_and_grad", "vjp", "jvp", "hvp", "stop_gradient"}
    protocol = {"active", "differentiable", "step_vjp", "step_jvp", "step_vjp_dot", "custom"}
    assert set(engine.__all__) == derivatives | protocol | {"Var", "Dual", "array", "asarray"} | {
        "rule", "elementwise", "composed", "flat",
    }  # fmt: skip


def test_no_framework_is_loaded():
    others = "{'scipy', 'jax', 'torch', 'autograd'}"
    program = f"import sys, pebbling.engine.numpy; print({others} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "pebbling.engine.autograd", raising=False)
    monkeypatch.setitem(sys.modules, "autograd.core", None)
    with pytest.raises(ImportError, match=r"pip install 'pebbling\[autograd\]'"):
        importlib.import_module("pebbling.engine.autograd")


def test_the_page_lists_the_functions_with_derivatives():
    page = (Path(__file__).parents[2] / "docs" / "numpy.md").read_text().split("## Functions with derivatives")[1]
    listed = {}
    for part in page.split("\n### ")[1:]:
        title, _, names = part.partition("\n\n")
        listed[title.split("`")[1]] = set(re.findall(r"`(\w+)`", names.partition("\n\n")[0]))
    command = [sys.executable, str(Path(__file__).with_name("known_functions.py"))]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {module: set(names) for module, names in json.loads(ran.stdout).items()}
    for module, names in listed.items():  # NumPy and SciPy lose and gain a few from version to version
        assert names - found[module] <= RENAMED, module
        assert found[module] - names <= RENAMED, module
    assert listed.keys() == found.keys()
    assert len(listed["numpy"]) > 230
