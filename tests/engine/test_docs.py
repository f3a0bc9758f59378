"""The public names, what importing them loads, and the examples in the docstrings."""

import doctest
import importlib
import subprocess
import sys

import numpy as np
import pytest

from pebbling.engine import numpy as engine
from pebbling.engine.numpy import table

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
