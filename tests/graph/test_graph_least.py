"""The smallest budget: the same at every call, from sizes alone, and met by ``solve`` whatever the time limit."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from graph_brute import least_time, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import BudgetError
from pebbling.graph import Graph, Storage, analyze, check, load, simulate, smallest, solve
from pebbling.graph.board import Board
from pebbling.graph.indexed import index
from pebbling.graph.least import least

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "graphs"
SOLVE = import_module("pebbling.graph.solve")
SHAPES = st.sampled_from([(4, 4), (8, 6), (12, 12), (25, 20)])
"""Forward and backward nodes of graphs that are searched to the end, in part, and by greed alone."""


def other_times(graph, seed):
    draw = np.random.default_rng(seed)
    nodes = [replace(node, time=float(draw.exponential())) for node in graph.nodes]
    return Graph(nodes, graph.inputs, graph.outputs)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), shape=SHAPES, limit=st.sampled_from([1e-9, 0.01, 1.0]))
def test_a_budget_that_was_named_works_whatever_the_time_limit(seed, shape, limit):
    graph = random_graph(seed, *shape)
    with pytest.raises(BudgetError) as refusal:
        solve(graph, -1 + max(node.bytes for node in graph.nodes), time_limit=limit)
    named = refusal.value.minimum
    assert named == smallest(graph)
    plan = solve(graph, named, time_limit=min(limit, 0.01))
    assert check(plan).peak <= named


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), shape=SHAPES, times=st.integers(0, 10**6))
def test_the_smallest_budget_depends_on_sizes_alone(seed, shape, times):
    graph = random_graph(seed, *shape)
    other = other_times(graph, times)
    named = smallest(graph)
    assert named == smallest(graph) == analyze(other).smallest
    assert check(solve(other, named, time_limit=0.01)).peak <= named


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6), shape=SHAPES)
def test_the_plan_in_hand_has_the_peak_that_is_named(seed, shape):
    graph = random_graph(seed, *shape)
    found = least(index(graph), 0)
    assert simulate(graph, found.steps).peak == found.peak


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1, 512]))
def test_no_plan_of_a_small_graph_has_a_smaller_peak(seed, scale):
    graph = random_graph(seed)
    nodes = [
        replace(
            node, workspace=scale * node.workspace, makes=tuple(Storage(s.name, scale * s.bytes) for s in node.makes)
        )
        for node in graph.nodes
    ]
    graph = Graph(nodes, graph.inputs, graph.outputs)
    named = smallest(graph)
    assert least_time(graph, named) < np.inf
    assert least_time(graph, named - 1) == np.inf


@pytest.fixture
def beyond_greed():
    """A graph whose smallest peak only the search over states finds, and that peak."""
    graph = random_graph(55)
    found = least(index(graph), 0)
    assert Board(index(graph), 0).measure(found.line)[0] > found.peak
    return graph, found.peak


def test_a_clock_that_has_run_out_changes_nothing(beyond_greed, monkeypatch):
    """A machine so busy that every look at the clock finds the time used up."""
    graph, named = beyond_greed
    ticks = iter(range(0, 10**9, 10**4))
    monkeypatch.setattr(SOLVE, "perf_counter", lambda: float(next(ticks)))
    with pytest.raises(BudgetError) as refusal:
        solve(graph, 1, time_limit=1)
    assert refusal.value.minimum == named
    assert check(solve(graph, named, time_limit=1)).peak <= named


def test_the_plan_in_hand_is_kept_where_no_stage_finds_another(beyond_greed, monkeypatch):
    graph, named = beyond_greed
    monkeypatch.setattr(Board, "relieve", lambda board, line: np.inf)
    monkeypatch.setattr(SOLVE, "exact", lambda *arguments: None)
    plan = solve(graph, named, time_limit=5)
    assert check(plan).peak <= named
    assert plan.stages[0][0] == "smallest peak"


@pytest.mark.parametrize("name", ["unet", "gpt12", "lstm"])
def test_captured_models_meet_the_smallest_budget_at_once(name):
    graph = load(GRAPHS / f"{name}.json.gz")
    named = smallest(graph)
    assert named == smallest(other_times(graph, 1))
    assert check(solve(graph, named, time_limit=0.01)).peak <= named


def test_a_graph_without_nodes_takes_nothing():
    assert smallest(Graph([], [Storage("x", 8, held=True)], ["x"])) == 0
