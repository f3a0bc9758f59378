"""Plans are valid, within the budget, no worse than their bound says, and the same for the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_brute import least_time, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

import pebbling as pb
from pebbling import BudgetError, ScheduleError
from pebbling.graph import Graph, Node, Storage, check, load, simulate, smallest, solve
from pebbling.graph.blocks import chain, reversals
from pebbling.graph.board import Board
from pebbling.graph.indexed import index

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "graphs"


def training_chain(steps, size=10, time=1.0):
    """Layers in a row, each of whose backward reads what entered it."""
    nodes = [Node(f"f{i}", (f"f{i - 1}" if i else "x",), (Storage(f"f{i}", size),), time) for i in range(steps)]
    nodes.append(Node("loss", (f"f{steps - 1}",), (Storage("loss", 1),), time))
    grad = "loss"
    for i in reversed(range(steps)):
        nodes.append(Node(f"b{i}", (f"f{i}", grad), (Storage(f"b{i}", size),), time, backward=True))
        grad = f"b{i}"
    return Graph(nodes, [Storage("x", size, held=True)], ["loss", "b0"])


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_small_graphs_are_solved_to_the_optimum(seed, share):
    graph = random_graph(seed)
    peak = solve(graph, None).peak
    least = smallest(graph)
    budget = int(least + share * (peak - least))
    plan = solve(graph, budget, time_limit=20)
    best = least_time(graph, budget)
    assert plan.time == pytest.approx(best)
    assert plan.optimal
    assert check(plan).peak <= budget


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_the_smallest_budget_works_and_less_is_refused_with_it(seed):
    graph = random_graph(seed)
    least = smallest(graph)
    assert solve(graph, least).peak <= least
    if least:
        with pytest.raises(BudgetError, match="smallest budget that a plan was found for") as caught:
            solve(graph, least - 1)
        assert caught.value.minimum == least


@pytest.mark.parametrize("steps", [4, 6, 13, 30])
def test_a_chain_takes_no_more_than_revolve(steps):
    """Equal steps of equal size, for which the least number of replays is known.

    Reversing layer i reads the result of layer i, so that ``steps`` layers are ``steps + 1`` steps whose
    first state is the caller's. While a backward step runs there are two gradients, the result that it
    reads, and ``slots - 1`` snapshots besides the caller's.
    """
    graph = training_chain(steps)
    for slots in (2, 4, 9):
        if slots < steps:
            plan = solve(graph, 1 + 10 * (slots + 2), time_limit=3)
            assert round(plan.overhead * graph.time) <= pb.Revolve(steps + 1, slots).cost.advances - steps
            check(plan)


def test_less_memory_never_means_less_time():
    graph = training_chain(7)
    times = [solve(graph, budget, time_limit=5).time for budget in range(41, 91, 10)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == graph.time


def ascending(graph, count=10):
    """Budgets from the smallest that works to the peak."""
    least, peak = smallest(graph), solve(graph, None).peak
    return sorted({int(least + (peak - least) * i / (count - 1)) for i in range(count)})


@pytest.mark.parametrize("name", ["unet", "mlp64", "gpt12"])
def test_more_memory_never_costs_a_captured_model_time(name):
    graph = load(GRAPHS / f"{name}.json.gz")
    overheads = [solve(graph, budget, time_limit=2).overhead for budget in ascending(graph)]
    assert overheads == sorted(overheads, reverse=True)
    assert overheads[-1] == 0


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), shape=st.sampled_from([(8, 7), (16, 14), (25, 20)]))
def test_a_plan_for_less_memory_as_the_start_is_never_made_slower(seed, shape):
    graph = random_graph(seed, *shape)
    plan = None
    for budget in ascending(graph):
        following = solve(graph, budget, time_limit=0.05, start=plan)
        assert check(following).peak <= budget
        if plan is not None:
            assert following.overhead <= plan.overhead
        plan = following
    assert plan.overhead == 0


def test_a_start_that_does_not_fit_is_refused():
    graph = training_chain(7)
    plan = solve(graph, 91)
    with pytest.raises(ScheduleError, match="would be taken of 61"):
        solve(graph, 61, start=replace(plan, memory=61))
    with pytest.raises(ValueError, match="another graph"):
        solve(training_chain(6), 81, start=plan)


@pytest.mark.parametrize("name", ["unet", "mlp64", "gpt12"])
def test_captured_models_are_solved_within_the_budget_and_near_the_bound(name):
    graph = load(GRAPHS / f"{name}.json.gz")
    peak = solve(graph, None).peak
    plan = solve(graph, 0.5 * peak, time_limit=20)
    assert check(plan).peak <= 0.5 * peak
    assert 0 < plan.bound <= plan.overhead <= 1.01 * plan.bound


def test_the_first_plans_come_before_the_best():
    graph = load(GRAPHS / "unet.json.gz")
    seen = []
    plan = solve(graph, 0.5 * solve(graph, None).peak, on_better=seen.append)
    assert len(seen) >= 2
    overheads = [each.overhead for each in seen]
    assert overheads == sorted(overheads, reverse=True)
    assert overheads[-1] == plan.overhead
    for each in seen:
        check(each)


def test_the_same_arguments_give_the_same_plan():
    graph = load(GRAPHS / "unet.json.gz")
    budget = 0.6 * solve(graph, None).peak
    assert solve(graph, budget, seed=3) == solve(graph, budget, seed=3)


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 0.5), draw=st.integers(0, 9))
def test_the_plan_depends_on_no_clock_that_does_not_bind(seed, share, draw):
    """Whatever the limit, and however busy the machine, a search that is not cut short ends at the same plan."""
    graph = random_graph(seed, 16, 14)
    least = smallest(graph)
    budget = int(least + share * (solve(graph, None).peak - least))
    plans = [solve(graph, budget, time_limit=limit, seed=draw) for limit in (1e4, 1e6)]
    assert plans[0] == plans[1]


def test_no_limit_keeps_everything():
    plan = solve(training_chain(5), None)
    assert plan.overhead == plan.bound == 0
    assert plan.optimal
    assert not plan.replayed


def test_a_budget_can_be_text():
    assert solve(training_chain(5), "1KiB").memory == 1024


@pytest.mark.parametrize("limit", [0, -1, True, "1"])
def test_a_time_limit_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match="time_limit"):
        solve(training_chain(2), None, time_limit=limit)


def test_a_refusal_names_the_tensors_that_are_too_large():
    graph = load(GRAPHS / "gpt12.json.gz")
    with pytest.raises(BudgetError, match=r"_log_softmax_backward_data.*15\.6 MiB"):
        solve(graph, "40MiB")


def test_a_refusal_says_when_the_outputs_alone_are_too_large():
    graph = Graph(
        [
            Node("a", ("x",), (Storage("a", 5),)),
            Node("b", ("x",), (Storage("b", 5),)),
            Node("c", ("x",), (Storage("c", 5),)),
        ],
        [Storage("x", 1, held=True)],
        ["a", "b", "c"],
    )
    with pytest.raises(BudgetError, match="outputs alone take 15 B"):
        solve(graph, 14)


def test_another_order_saves_what_replays_would_cost():
    """Two branches with a large middle: one after the other they fit, and nothing is replayed."""
    nodes = [Node(f"wide{i}", ("x",), (Storage(f"wide{i}", 100),), 1.0) for i in range(2)]
    nodes += [Node(f"thin{i}", (f"wide{i}",), (Storage(f"thin{i}", 1),), 1.0) for i in range(2)]
    nodes.append(Node("join", ("thin0", "thin1"), (Storage("join", 1),), 1.0))
    graph = Graph(nodes, [Storage("x", 1, held=True)], ["join"])
    assert solve(graph, None).peak == 201
    plan = solve(graph, 102)
    assert plan.overhead == 0
    assert check(plan).peak == 102


def test_dropped_results_are_replayed_together():
    """Dropping both results of one operation costs one replay, not two."""
    nodes = [
        Node("f", ("x",), (Storage("a", 50), Storage("b", 50)), 4.0),
        Node("wide", ("a", "b"), (Storage("wide", 150),), 1.0),
        Node("loss", ("wide",), (Storage("loss", 1),), 1.0),
        Node("g", ("loss",), (Storage("g", 100),), 1.0, 60, backward=True),
        Node("h", ("g", "a", "b"), (Storage("h", 1),), 1.0, backward=True),
    ]
    graph = Graph(nodes, [Storage("x", 1, held=True)], ["loss", "h"])
    plan = solve(graph, 251)
    assert plan.replayed == {"f": 1}
    assert plan.overhead == 4.0 / 8.0
    assert plan.optimal


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), share=st.floats(0.3, 1))
def test_compiled_and_plain_loops_agree(seed, share):
    graph = random_graph(seed, 6, 6)
    indexed = index(graph)
    results = []
    for compile in (False, True):
        board = Board(indexed, 0, seed=1, compile=compile)
        peak, _ = board.measure(board.everything())
        board.budget = int(share * peak)
        line = board.everything()
        if board.relieve(line) < np.inf:
            board.restore(line)
            board.improve(line, 3000, 0.1)
            assert simulate(graph, board.steps(line), board.budget).time == pytest.approx(line.time)
        results.append((line.time, line.keep.tolist(), line.hold.tolist()))
    assert results[0] == results[1]


def test_blocks_of_a_chain_are_found_and_reversed():
    graph = training_chain(40)
    links = chain(index(graph), np.arange(len(graph)))
    assert links.is_chain
    board = Board(index(graph), 150)
    plans = 0
    for line in reversals(board, links):
        if board.relieve(line) < np.inf:
            assert simulate(graph, board.steps(line), 150).peak <= 150
            plans += 1
    assert plans
