"""A graph refuses what makes no sense, naming the node, and survives a file."""

from __future__ import annotations

import pytest
from graph_brute import random_graph
from hypothesis import given
from hypothesis import strategies as st

from pebbling.graph import Graph, Node, Storage, load, save, solve

X = Storage("x", 4, held=True)


def node(name, reads=(), size=1, **more):
    return Node(name, tuple(reads), (Storage(name, size),), **more)


WRONG = {
    "node twice": ([node("a"), node("a")], [], [], "'a' is there twice"),
    "no maker": ([node("a", ["b"])], [], [], "'a' reads 'b', which no node makes"),
    "later": ([node("a", ["b"]), node("b")], [], [], "'a' reads 'b' of node 'b', which comes later"),
    "cycle": ([node("a", ["b"]), node("b", ["a"])], [], [], "nodes a → b → a form a cycle"),
    "itself": ([node("a", ["a"])], [], [], "nodes a → a form a cycle"),
    "longer cycle": (
        [node("z"), node("a", ["z", "c"]), node("b", ["a"]), node("c", ["b"])], [], [], "a → .* → a form a cycle",
    ),
    "negative bytes": ([node("a", size=-1)], [], [], "'a': bytes of 'a' is -1"),
    "half a byte": ([node("a", size=0.5)], [], [], "'a': bytes of 'a' is 0.5; expected a whole number"),
    "negative time": ([node("a", time=-1.0)], [], [], "'a': time is -1.0"),
    "time not a number": ([node("a", time=float("nan"))], [], [], "'a': time is nan"),
    "negative workspace": ([node("a", workspace=-2)], [], [], "'a': workspace is -2"),
    "two makers": ([node("a"), Node("b", (), (Storage("a", 1),))], [], [], "'b' makes 'a', which is made by node 'a'"),
    "makes an input": ([node("x")], [X], [], "'x' makes 'x', which is an input"),
    "input twice": ([], [X, X], [], "input 'x' is there twice"),
    "input not held": ([], [Storage("x", 1)], [], "input 'x' is not held"),
    "held and made": ([Node("a", (), (Storage("a", 1, held=True),))], [], [], "'a' makes 'a', which is marked as held"),
    "no such output": ([node("a")], [], ["b"], "output 'b' is made by no node"),
    "forward reads backward": (
        [node("a", backward=True), node("b", ["a"])], [], [], "'b' of the forward pass reads 'a'",
    ),
    "backward before the loss": (
        [node("a", backward=True), node("loss")], [], ["loss", "a"], "'a' of the backward pass comes before",
    ),
    "after nothing": ([node("a", after=("b",))], [], [], "'a' is to run after 'b', which is no node"),
    "after a later one": ([node("a", after=("b",)), node("b")], [], [], "'a' is to run after node 'b', which"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case):
    nodes, inputs, outputs, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        Graph(nodes, inputs, outputs)


def test_facts_of_a_graph():
    graph = Graph(
        [node("y", ["x"], 8, time=2.0), node("loss", ["y"], 1, time=1.0), node("dy", ["y", "loss"], 8, backward=True)],
        [X],
        ["loss", "dy"],
    )
    assert graph.saved == ("y", "loss")
    assert graph.time == 3.0
    assert graph.kept == {"x", "loss", "dy"}
    assert graph.maker["dy"].name == "dy"


@pytest.mark.parametrize("name", ["graph.json", "graph.json.gz"])
@given(seed=st.integers(0, 10**6))
def test_a_graph_and_a_plan_survive_a_file(name, seed, tmp_path_factory):
    graph = random_graph(seed)
    path = tmp_path_factory.mktemp("graphs") / name
    save(graph, path)
    assert load(path) == graph
    plan = solve(graph, None)
    save(plan, path)
    assert load(path) == plan


def test_all_marks_of_a_node_survive_a_file(tmp_path):
    marked = Node(
        "b",
        ("x", "a"),
        (Storage("b.0", 3), Storage("b.1", 0)),
        0.25,
        7,
        True,
        False,
        True,
        ("a",),
        "op",
        "m",
        ("p", "q"),
    )
    graph = Graph([node("a"), marked], [X], ["b.0"], "both")
    save(graph, tmp_path / "g.json")
    assert load(tmp_path / "g.json") == graph


def test_equal_graphs_are_equal_files(tmp_path):
    save(random_graph(1), tmp_path / "a.gz")
    save(random_graph(1), tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other", "version": 1}'])
def test_another_file_is_refused_by_name(content, tmp_path):
    (tmp_path / "g.json").write_text(content)
    with pytest.raises(ValueError, match=r"g\.json"):
        load(tmp_path / "g.json")
