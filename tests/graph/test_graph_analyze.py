"""Where the bytes go, by definitions that hold: frontier, orders, what replays can save, random graphs."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from graph_brute import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph_solve import training_chain

from pebbling.graph import Graph, Node, Storage, analyze, load, simulate, solve
from pebbling.graph.board import Board
from pebbling.graph.indexed import index
from pebbling.show.live import live
from pebbling.units import format_bytes

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "graphs"


def node(name, size, *reads):
    return Node(name, reads, (Storage(name, size),), 1.0)


BRANCHES = Graph(
    [node("a", 4), node("b", 100), node("use_a", 5, "a"), node("use_b", 5, "b"), node("join", 8, "use_a", "use_b")],
    outputs=["join"],
)


def test_the_frontier_counts_what_a_node_reads_and_makes():
    graph = Graph([node("input", 4), node("linear", 8, "input"), node("relu", 8, "linear")], outputs=["relu"])
    assert analyze(graph).curve == (4, 12, 16)


def test_a_branch_that_waits_makes_the_peak_and_an_order_avoids_it():
    found = analyze(BRANCHES)
    assert found.curve == (4, 104, 109, 110, 18)
    assert (found.peak, found.worst) == (110, "use_b")
    assert found.at_peak == (("b", 100), ("use_a", 5), ("use_b", 5))
    # The large branch first: nothing waits while it is there.
    assert found.order[:2] == ("b", "use_b")
    assert found.order_peak == 105
    assert found.lower_peak == 105


def test_a_forward_pass_alone_gains_nothing_from_replays():
    found = analyze(BRANCHES)
    assert found.smallest == found.order_peak == found.lower_peak


@pytest.mark.parametrize("steps", [4, 6, 20])
def test_a_chain_with_its_backward_pass_shrinks_to_a_constant(steps):
    """All results are kept for the backward pass; with replays two of them and two gradients are enough."""
    found = analyze(training_chain(steps))
    assert found.peak == 10 * (steps + 1) + 1
    assert found.smallest == 31
    assert found.lower_peak == 31


def test_what_is_saved_is_listed_by_price():
    nodes = [
        Node("dear", ("x",), (Storage("dear", 10),), 5.0),
        Node("cheap", ("dear",), (Storage("cheap", 10),), 1.0),
        Node("loss", ("cheap",), (Storage("loss", 1),), 1.0),
        Node("back", ("loss", "dear", "cheap"), (Storage("back", 10),), 1.0, backward=True),
    ]
    found = analyze(Graph(nodes, [Storage("x", 1, held=True)], ["loss", "back"]))
    assert [(each.name, each.time) for each in found.saved] == [("cheap", 1.0), ("dear", 5.0)]
    assert found.saved[0].price == 0.1


def test_bounds_of_the_overhead():
    found = analyze(training_chain(8))
    assert found.bound(found.peak) == 0
    assert found.bound(found.lower_peak - 1) == float("inf")
    assert 0 < found.bound(51) < found.bound(41)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_the_curve_is_that_of_the_machine(seed):
    graph = random_graph(seed)
    found = analyze(graph)
    board = Board(index(graph), 0, compile=False)
    steps = board.steps(board.everything())
    cost = simulate(graph, steps)
    computed = [taken for step, taken in zip(steps, cost.curve, strict=True) if hasattr(step, "node")]
    assert list(found.curve) == computed
    assert found.peak == cost.peak
    assert sum(size for _, size in found.at_peak) + graph.node[found.worst].workspace == found.peak


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_the_order_is_the_best_of_all_for_small_graphs(seed):
    graph = random_graph(seed, 4, 3)
    indexed = index(graph)
    board = Board(indexed, 0, compile=False)
    peaks = []
    for order in permutations(range(len(graph))):
        place = {node: i for i, node in enumerate(order)}
        if all(place[other] < place[node] for node in order for other in indexed.before[node]):
            peaks.append(board.measure(board.everything(np.array(order)))[0])
    assert analyze(graph).order_peak == min(peaks)


def random_dag(nodes, parents, seed=0):
    draw = np.random.default_rng(seed)
    made = []
    for i in range(nodes):
        count = min(i, int(draw.integers(1, parents + 1)))
        reads = sorted({int(j) for j in draw.choice(i, count, replace=False)}) if count else []
        made.append(node(f"n{i}", int(draw.integers(64, 513)) * 1000, *(f"n{j}" for j in reads)))
    read = {name for each in made for name in each.reads}
    return Graph(made, outputs=[each.name for each in made if each.name not in read])


@pytest.mark.parametrize(("nodes", "parents"), [(64, 3), (192, 4), (384, 6)])
def test_random_graphs_have_better_orders(nodes, parents):
    found = analyze(random_dag(nodes, parents))
    assert found.lower_peak <= found.order_peak < found.peak
    assert sorted(found.order) == sorted(each.name for each in found.graph.nodes)


def test_a_language_model_is_a_chain_of_blocks():
    found = analyze(load(GRAPHS / "gpt12.json.gz"))
    assert found.blocks
    assert len(found.cuts) >= 12
    text = str(found)
    assert "_log_softmax_backward_data" in text
    assert "a chain" in text
    assert "to make again" in text


def test_nothing_to_do():
    found = analyze(Graph([]))
    assert (found.peak, found.curve, found.lower_peak) == (0, (), 0)


def test_pictures_say_what_was_found():
    graph = load(GRAPHS / "unet.json.gz")
    found = analyze(graph)
    assert f"{format_bytes(found.peak)} at {found.worst}" in live(found)
    plan = solve(graph, 0.5 * found.peak, time_limit=10)
    drawn = live(plan)
    assert f"{format_bytes(plan.peak)} instead of {format_bytes(found.peak)}" in drawn
    assert f"budget {format_bytes(plan.memory)}" in drawn
