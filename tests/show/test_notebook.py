"""What a notebook shows: pictures of schedules, texts of plans and reports."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import pebbling as pb
from pebbling.graph import Graph, Node, Storage, solve
from pebbling.show import notebook


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would show of a value, by kind."""
    shell = InteractiveShell()
    shell.display_formatter.active_types = shell.display_formatter.format_types
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    notebook.register()
    yield lambda value: shell.display_formatter.format(value)[0]
    shell.history_manager.end_session()


def test_a_schedule_is_its_picture(shown):
    assert shown(pb.Revolve(20, 4))["image/svg+xml"].count("turn step") == 20
    assert "<svg" in shown(pb.Mixed(20, 4))["image/svg+xml"]


def test_a_plan_is_its_text_and_the_picture_of_its_schedule(shown):
    page = shown(pb.plan(100, state="1GB", memory="16GB"))["text/html"]
    assert "forwards a step" in page
    assert "<svg" in page


def test_results_are_their_reports(shown):
    def advance(u, i):
        return 1.1 * u

    def reverse(u, adjoint, i):
        return 1.1 * adjoint

    result = pb.adjoint(advance, reverse, np.ones(10_000), 20, np.ones(10_000), slots=4)
    assert "snapshots" in shown(result)["text/html"]
    assert len(shown(result)["text/html"]) < 2000
    assert "snapshots" in shown(result.report)["text/html"]
    taylor = pb.taylor_test(lambda x: (np.sum(x**3), 3 * x**2), np.ones(3))
    assert "order" in shown(taylor)["text/html"]


def test_a_plan_of_a_graph_is_its_text(shown):
    graph = Graph([Node("a", ("x",), (Storage("y", 8),))], [Storage("x", 8, held=True)], ["y"])
    assert "peak" in shown(solve(graph, None))["text/html"]


def test_every_class_that_is_named_exists():
    for module, names in {**notebook.AS_TEXT, "pebbling.drive.adjoint": ("Result",)}.items():
        for name in names:
            assert getattr(importlib.import_module(module), name).__module__ == module


def test_outside_of_notebooks_nothing_happens(monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    notebook.register()
