"""The abstract machine refuses every kind of broken plan, and counts bytes and time by its rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pebbling import ScheduleError
from pebbling.graph import (
    Compute,
    Fetch,
    Free,
    Graph,
    GraphPlan,
    Node,
    Offload,
    Storage,
    check,
    simulate,
    solve,
)

GRAPH = Graph(
    [
        Node("y", ("x",), (Storage("y", 8), Storage("mask", 1)), 2.0, 3),
        Node("loss", ("y",), (Storage("loss", 1),), 1.0),
        Node("send", ("y",), (), 0.5, replayable=False),
        Node("dy", ("y", "mask"), (Storage("dy", 8),), 1.5, backward=True, after=("send",)),
    ],
    [Storage("x", 100, held=True)],
    ["loss", "dy"],
)
Y, LOSS, SEND, DY = Compute("y"), Compute("loss"), Compute("send"), Compute("dy")
PLAIN = [Y, LOSS, SEND, DY, Free("y"), Free("mask")]


def test_a_plan_that_keeps_everything():
    cost = simulate(GRAPH, PLAIN)
    assert cost.curve == (12, 10, 10, 18, 18, 10)
    assert (cost.peak, cost.time, cost.overhead, cost.worst) == (18, 5.0, 0.0, 3)


def test_a_replay_makes_all_results_again_and_drops_those_that_are_there():
    cost = simulate(GRAPH, [Y, LOSS, SEND, Free("y"), Y, DY, Free("y"), Free("mask")])
    # Before the replay: loss and mask; during it all results and the workspace, mask a second time.
    assert cost.curve[4] == 2 + 9 + 3
    assert cost.curve[5] == 10 + 8
    assert cost.overhead == 2.0 / 5.0


def test_offloading_takes_the_bytes_away_and_the_time_of_two_copies():
    steps = [Y, LOSS, SEND, Offload("y"), Fetch("y"), DY, Free("y"), Free("mask")]
    assert simulate(GRAPH, steps, transfer=16.0).time == 5.0 + 2 * 8 / 16
    assert simulate(GRAPH, steps).curve[3] == 10
    assert simulate(GRAPH, steps).curve[4] == 10


BROKEN = {
    "input missing": ([LOSS], "reads 'y', which is not there"),
    "input freed": ([Y, Free("y"), LOSS], "reads 'y', which is not there"),
    "backward twice": ([*PLAIN[:4], DY], "has run before, and is of the backward pass"),
    "effect twice": ([Y, SEND, SEND], "has run before, and can't be replayed"),
    "effect too late": ([Y, LOSS, DY], "is to run after 'send'"),
    "loss too late": ([Y, SEND, DY], "output 'loss' of the forward pass is not there"),
    "freed twice": ([Y, Free("y"), Free("y")], "'y' is not there"),
    "freed output": ([Y, LOSS, Free("loss")], "'loss' is an output"),
    "freed input": ([Free("x")], "'x' is the caller's"),
    "offloaded output": ([Y, LOSS, Offload("loss")], "'loss' is an output"),
    "fetched from nowhere": ([Y, Fetch("y")], "'y' is not on the host"),
    "fetched twice": ([Y, Offload("y"), Fetch("y"), Fetch("y")], "'y' is not on the host"),
    "left behind": (PLAIN[:-1], "1 storages are left, 'mask' first"),
    "left on the host": ([*PLAIN[:4], Offload("y"), Free("mask")], "1 storages are left, 'y' first"),
    "not run": ([Y, LOSS, Free("y"), Free("mask")], "2 nodes never ran, 'send' first"),
    "no such node": ([Compute("z")], "there is no such node"),
    "no such storage": ([Free("z")], "'z' is not there"),
    "no step": (["y"], "that is not a step"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plan_is_refused(case):
    steps, message = BROKEN[case]
    with pytest.raises(ScheduleError, match=message):
        simulate(GRAPH, steps)


def test_the_budget_is_held_to_the_byte():
    simulate(GRAPH, PLAIN, 18)
    with pytest.raises(ScheduleError, match=r"18 bytes .* would be taken of 17") as caught:
        simulate(GRAPH, PLAIN, 17)
    assert caught.value.index == 3


def test_a_promise_that_is_not_kept_is_found():
    plan = solve(GRAPH, None)
    assert check(plan).peak == plan.peak
    with pytest.raises(ScheduleError, match="promises a peak"):
        check(replace(plan, peak=plan.peak - 1))
    with pytest.raises(ScheduleError, match="promises an overhead"):
        check(replace(plan, overhead=0.1))


def test_parts_of_a_plan():
    plan = GraphPlan(GRAPH, (Y, LOSS, SEND, Free("y"), Y, DY, Free("y"), Free("mask")), 20, 18, 0.4, 0.3)
    assert plan.forward == (Y, LOSS, SEND, Free("y"), Y)
    assert plan.backward == (DY, Free("y"), Free("mask"))
    assert plan.saved == ("mask", "y")
    assert plan.replayed == {"y": 1}
    assert plan.time == 7.0
    assert plan.gap == pytest.approx(1.4 / 1.3 - 1)
    assert "bound 30.00%" in str(plan)
    assert not plan.optimal
    assert "proven optimal" in str(replace(plan, bound=0.4))
