"""Plans that copy results to the host: within both budgets, no worse than without, and optimal where that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_brute import least_time, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import BudgetError, ScheduleError
from pebbling.graph import (
    Compute,
    Fetch,
    Free,
    Graph,
    Node,
    Offload,
    Storage,
    check,
    highs,
    load,
    save,
    simulate,
    smallest,
    solve,
)
from pebbling.graph.board import Board
from pebbling.graph.host import Host, with_host
from pebbling.graph.indexed import index
from pebbling.graph.programme import programme
from pebbling.graph.relations import relate, smallest_peak

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "graphs"
ROOM, RATE = st.integers(1, 12), st.sampled_from([0.5, 2.0, 10.0, 1e3])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), host=ROOM, transfer=RATE)
def test_small_graphs_are_solved_to_the_optimum(seed, share, host, transfer):
    graph = random_graph(seed)
    least = smallest(graph, host)
    budget = int(least + share * (solve(graph, None).peak - least))
    plan = solve(graph, budget, time_limit=20, host=host, transfer=transfer)
    assert plan.time == pytest.approx(least_time(graph, budget, host, transfer))
    assert plan.optimal
    cost = check(plan)
    assert cost.peak == plan.peak <= budget
    assert cost.host_peak == plan.host_peak <= host


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), host=ROOM, transfer=RATE)
def test_the_smallest_budget_is_that_of_the_best_plan_with_copies(seed, host, transfer):
    graph = random_graph(seed)
    least = smallest(graph, host)
    assert least <= smallest(graph)
    assert least_time(graph, least, host, transfer) < np.inf
    assert check(solve(graph, least, time_limit=0.01, host=host, transfer=transfer)).peak <= least
    if least:
        assert least_time(graph, least - 1, host, transfer) == np.inf
        with pytest.raises(BudgetError) as refusal:
            solve(graph, least - 1, host=host, transfer=transfer)
        assert refusal.value.minimum == least


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6), forward=st.integers(3, 5), host=ROOM, transfer=RATE)
def test_the_programme_is_never_above_the_optimum(seed, forward, host, transfer):
    graph = random_graph(seed, forward, 8 - forward)
    indexed = with_host(index(graph), Host(host, transfer))
    relations = relate(indexed)
    once = graph.time - sum(node.time for node in graph.nodes if node.replayable and not node.backward)
    floor = smallest_peak(indexed, relations)
    if floor:
        assert least_time(graph, floor - 1, host, transfer) == np.inf
    backward = np.flatnonzero(indexed.backward).tolist()
    lines = [(first,) for first in backward]
    lines += [(first, second) for first in backward for second in backward if relations.precedes(first, second)]
    for budget in range(floor, floor + 4):
        best = least_time(graph, budget, host, transfer)
        for line in lines[:: max(1, len(lines) // 6)]:
            problem = programme(indexed, relations, line, max(budget, 1))
            for answer in (highs.relaxed(problem, 10.0, 0), highs.whole(problem, 10.0, 0, 1000)):
                if answer.infeasible:
                    assert best == np.inf
                else:
                    assert answer.bound * (graph.time or 1.0) + once <= best + 1e-9


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), share=st.floats(0.2, 1), host=st.integers(1, 40), transfer=RATE)
def test_compiled_and_plain_loops_agree(seed, share, host, transfer):
    graph = random_graph(seed, 6, 6)
    indexed = with_host(index(graph), Host(host, transfer))
    results = []
    for compile in (False, True):
        board = Board(indexed, 0, seed=1, compile=compile)
        board.budget = int(share * board.measure(board.everything())[0])
        line = board.everything()
        if board.relieve(line) < np.inf:
            board.restore(line)
            board.improve(line, 3000, 0.1)
            cost = simulate(graph, board.steps(line), board.budget, transfer, host)
            assert cost.time == pytest.approx(line.time)
        results.append((line.time, line.keep.tolist(), line.hold.tolist(), line.sent.tolist()))
    assert results[0] == results[1]


def captured(name):
    graph = load(GRAPHS / f"{name}.json.gz")
    return graph, solve(graph, None).peak


@pytest.mark.parametrize("name", ["unet", "mlp64", "gpt12"])
def test_copies_never_make_a_captured_model_slower(name):
    graph, peak = captured(name)
    without = solve(graph, 0.5 * peak)
    overheads = []
    for transfer in (1.0, 1e9, 1e10, 1e12):
        plan = solve(graph, 0.5 * peak, host="1GB", transfer=transfer)
        assert check(plan).peak <= 0.5 * peak
        assert plan.bound <= plan.overhead <= without.overhead + 1e-12
        overheads.append(plan.overhead)
    assert overheads == sorted(overheads, reverse=True)
    assert overheads[-1] < 0.01


def test_a_link_that_is_too_slow_changes_nothing():
    graph, peak = captured("unet")
    without = solve(graph, 0.5 * peak)
    plan = solve(graph, 0.5 * peak, host="1GB", transfer=1.0)
    assert plan.steps == without.steps
    assert (plan.overhead, plan.bound) == (without.overhead, without.bound)
    assert not plan.offloaded


def test_the_hosts_budget_is_kept_and_more_of_it_helps():
    graph, peak = captured("mlp64")
    plans = [solve(graph, 0.3 * peak, host=host, transfer=1e11) for host in ("0B", "20MB", "80MB", "1GB")]
    for plan in plans:
        assert check(plan).host_peak == plan.host_peak <= plan.host
    overheads = [plan.overhead for plan in plans]
    assert overheads == sorted(set(overheads), reverse=True)


def test_gradients_that_wait_can_go_to_the_host():
    """What can't be made again: a budget that no replays could meet."""
    nodes = [
        Node("loss", ("x",), (Storage("loss", 1),), 1.0),
        Node("early", ("loss",), (Storage("early", 50),), 1.0, backward=True),
        Node("wide", ("loss",), (Storage("wide", 60),), 1.0, backward=True, after=("early",)),
        Node("thin", ("wide",), (Storage("thin", 1),), 1.0, backward=True),
        Node("end", ("thin", "early"), (Storage("end", 1),), 1.0, backward=True),
    ]
    graph = Graph(nodes, [Storage("x", 1, held=True)], ["loss", "end"])
    assert smallest(graph) == 112
    plan = solve(graph, 62, host=50, transfer=25)
    assert plan.steps.index(Offload("early")) < plan.steps.index(Compute("wide")) < plan.steps.index(Fetch("early"))
    assert plan.overhead == 4.0 / 5.0
    assert plan.optimal
    with pytest.raises(BudgetError) as refusal:
        solve(graph, 62, host=49, transfer=25)
    assert refusal.value.minimum == 112


def test_the_same_arguments_give_the_same_plan():
    graph, peak = captured("mlp64")
    plans = [solve(graph, 0.3 * peak, host="40MB", transfer="100GB/s", seed=3) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].offloaded


def test_a_plan_with_copies_is_no_start_without_a_host():
    graph, peak = captured("mlp64")
    plan = solve(graph, 0.5 * peak, host="1GB", transfer="1000GB/s")
    assert solve(graph, 0.5 * peak, host="1GB", transfer="1000GB/s", start=plan).overhead <= plan.overhead
    with pytest.raises(ScheduleError, match="would be on the host, of 0"):
        solve(graph, 0.5 * peak, start=plan)


def test_a_plan_says_what_goes_to_the_host(tmp_path):
    graph, peak = captured("unet")
    plan = solve(graph, 0.5 * peak, host="1GB", transfer="1000GB/s")
    text = str(plan)
    assert f"offloaded  {len(plan.offloaded)} storages, {sum(plan.offloaded.values())} times" in text
    assert "of 954 MiB on the host" in text
    save(plan, tmp_path / "plan.json.gz")
    assert load(tmp_path / "plan.json.gz") == plan
    assert "offloaded" not in str(solve(graph, 0.5 * peak))


STEPS = (Compute("y"), Offload("y"), Fetch("y"), Compute("dy"), Free("y"))
CHAIN = Graph(
    [Node("y", ("x",), (Storage("y", 8),), 1.0), Node("dy", ("y",), (Storage("dy", 8),), 1.0, backward=True)],
    [Storage("x", 8, held=True)],
    ["dy"],
)


def test_the_machine_holds_the_hosts_budget_to_the_byte():
    assert simulate(CHAIN, STEPS, host=8).host_peak == 8
    with pytest.raises(ScheduleError, match=r"8 bytes .* would be on the host, of 7"):
        simulate(CHAIN, STEPS, host=7)


def test_steps_of_different_kinds_differ():
    assert len({Free("y"), Offload("y"), Fetch("y"), Compute("y")}) == 4
    assert Free("y") == Free("y") != Offload("y")


def test_a_promise_about_the_host_is_checked():
    plan = replace(solve(CHAIN, None), steps=STEPS, transfer=16.0, overhead=0.5, host_peak=8)
    assert check(plan).time == 3.0
    with pytest.raises(ScheduleError, match="promises a peak of 0 bytes on the host"):
        check(replace(plan, host_peak=0))
    with pytest.raises(ScheduleError, match="promises an overhead"):
        check(replace(plan, transfer=8.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "2GiB"}, "host is 2 GiB, and transfer is not given"),
        ({"transfer": 1e9}, "host is not given"),
        ({"host": 1, "transfer": 0}, "more than 0"),
        ({"host": -1, "transfer": 1}, "-1"),
        ({"host": "much", "transfer": 1}, "much"),
    ],
)
def test_half_a_host_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        solve(CHAIN, None, **options)
