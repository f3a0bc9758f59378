"""Programmes as HiGHS wants them: no variable twice in a row, which it does not check and does not survive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_brute import random_graph

from pebbling.graph import Graph, Node, Storage, highs, load, smallest, solve
from pebbling.graph import tighten as tightening
from pebbling.graph.linear import Constraints, Programme

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "graphs"


@pytest.fixture
def seen(monkeypatch):
    """Programmes that are built while plans are searched."""
    found, build = [], tightening.programme
    monkeypatch.setattr(tightening, "programme", lambda *args: found.append(build(*args)) or found[-1])
    return found


def assert_sound(programmes):
    assert programmes
    for each in programmes:
        entries = list(zip(each.row.tolist(), each.column.tolist(), strict=True))
        assert len(set(entries)) == len(entries)
        assert np.all(each.coefficient != 0)
        assert np.all(np.diff(each.row) >= 0)


def test_terms_of_one_variable_become_one_entry():
    rows = Constraints()
    rows.add(np.array([1.0, 2.0]), (1.0, np.array([3, 0])), (-1.0, np.array([-1, 2])), (2.0, np.array([3, 2])))
    rows.one(4.0, np.array([0.5, 0.25, 1.0, -1.0]), np.array([1, 1, 0, 0]))
    row, column, coefficient, limit = rows.gathered()
    assert list(zip(row, column, coefficient)) == [(0, 3, 3.0), (1, 0, 1.0), (1, 2, 1.0), (2, 1, 0.75)]
    assert list(limit) == [1.0, 2.0, 4.0]


def two_gradients(steps):
    """A chain with a node beside every backward one, at a time of its choice, whose two results stay."""
    nodes, before = [], "x"
    for i in range(steps):
        nodes.append(Node(f"f{i}", (before,), (Storage(f"y{i}", 100),), 1.0))
        before = f"y{i}"
    pull = before
    for i in reversed(range(steps)):
        read = (pull, f"y{i - 1}" if i else "x")
        nodes.append(Node(f"p{i}", read, (Storage(f"g{i}", 100),), 1.0, backward=True))
        nodes.append(Node(f"q{i}", read, (Storage(f"w{i}", 3), Storage(f"b{i}", 3)), 1.0, backward=True))
        pull = f"g{i}"
    outputs = [f"{kind}{i}" for i in range(steps) for kind in "wb"]
    return Graph(nodes, [Storage("x", 100, held=True)], outputs)


def test_outputs_of_one_node_do_not_stand_twice(seen):
    graph = two_gradients(16)
    plan = solve(graph, smallest(graph) + 150, time_limit=5)
    assert_sound(seen)
    assert plan.bound > 0


@pytest.mark.parametrize("seed", range(12))
def test_programmes_of_random_graphs_are_sound(seen, seed):
    graph = random_graph(seed, 20, 20)
    least, most = smallest(graph), solve(graph, None).peak
    solve(graph, (least + most) // 2, time_limit=2)
    host = {} if seed % 2 else {"host": int(most), "transfer": 50.0}
    solve(graph, least, time_limit=2, **host)
    assert_sound(seen)


def test_programmes_of_a_captured_model_are_sound(seen):
    graph = load(GRAPHS / "gpt12.json.gz")
    solve(graph, int(0.3 * solve(graph, None).peak + 0.7 * smallest(graph)), time_limit=5)
    assert_sound(seen)


@pytest.mark.parametrize(("name", "bound"), [("first", 0.42925), ("second", 0.56121)])
def test_programmes_that_a_second_entry_made_deadly(name, bound):
    """Met in practice: of the one HiGHS died, of the other it did not return."""
    arrays = dict(np.load(Path(__file__).parent / "programmes" / f"{name}.npz"))
    rows = Constraints([arrays["row"]], [arrays["column"]], [arrays["coefficient"]], [arrays["limit"]])
    assert len(set(zip(arrays["row"], arrays["column"]))) == len(arrays["row"]) - 1
    entries = dict(zip(("row", "column", "coefficient", "limit"), rows.gathered(), strict=True))
    nothing = np.zeros((1, 0), np.int64)
    problem = Programme(**{**arrays, **entries}, alive=nothing, away=nothing, points=(0,))
    answer = highs.whole(problem, 60.0, 0, 100)
    assert answer.bound == pytest.approx(bound, abs=1e-4)
    assert highs.relaxed(problem, 60.0, 0).bound <= bound + 1e-4
