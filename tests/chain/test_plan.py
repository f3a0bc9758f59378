"""From bytes to a schedule."""

from __future__ import annotations

import json
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pebbling as pb

EXAMPLE = {
    "state": "4GB",
    "tape": "8GB",
    "forward": "0.5s",
    "backward": "1s",
    "memory": "64GB",
    "disk": "4TB",
    "disk_write": "2GB/s",
    "disk_read": "3GB/s",
}


def test_everything_is_stored_if_it_fits_and_nothing_runs_twice():
    plan = pb.plan(100, state=1000, tape=500, memory=2 * 1000 + 100 * 500)
    assert plan.schedule == pb.StoreAll(100)
    assert (plan.forwards, plan.gap, plan.overhead) == (100, 0, 0)
    assert plan.peak == {"memory": 52_000}
    assert pb.plan(100, state=1000).schedule == pb.StoreAll(100)


def test_memory_alone_is_planned_optimally_and_says_so():
    plan = pb.plan(1000, state="1MiB", memory="16MiB")
    assert plan.schedule == pb.Mixed(1000, 13)
    assert plan.forwards == pb.Mixed(1000, 13).cost.forwards
    assert plan.gap == 0
    assert plan.peak["memory"] <= 16 * 2**20


def test_a_disk_takes_what_memory_can_not():
    plan = pb.plan(10**6, **EXAMPLE)
    alone = pb.plan(10**6, **{k: v for k, v in EXAMPLE.items() if "disk" not in k})
    assert plan.time < alone.time
    assert plan.peak["memory"] <= 64e9
    assert 0 < plan.peak["disk"] <= 4e12
    assert plan.bound <= plan.time
    assert pb.check(plan.schedule if plan.schedule.steps < 10**5 else pb.plan(2000, **EXAMPLE).schedule)


def test_a_plan_for_a_million_steps_takes_less_than_a_second():
    begun = perf_counter()
    pb.plan(10**6, **EXAMPLE)
    assert perf_counter() - begun < 3  # a second on a quiet machine, as the benchmark shows


def test_it_prints_as_a_small_table():
    text = str(pb.plan(2000, **EXAMPLE))
    for word in ("schedule", "peak, memory", "peak, disk", "forwards a step", "expected time", "lower bound", "gap"):
        assert word in text
    assert len(text.splitlines()) <= 8
    assert "forwards" in str(pb.plan(100, state=8, memory=80)).splitlines()[-1]


@pytest.mark.parametrize("steps", [2, 3, 10, 1000])
@pytest.mark.parametrize("tape", [10, 1000, 3333])
@pytest.mark.parametrize("disk", [None, 5000])
def test_the_smallest_budget_is_named_and_works(steps, tape, disk):
    more = {} if disk is None else {"forward": 1.0, "disk": disk, "disk_write": 1e3, "disk_read": 1e3}
    with pytest.raises(pb.BudgetError, match="need at least") as error:
        pb.plan(steps, state=1000, tape=tape, memory=100, **more)
    minimum = error.value.minimum
    plan = pb.plan(steps, state=1000, tape=tape, memory=minimum, **more)
    assert plan.peak["memory"] <= minimum
    assert pb.check(plan.schedule) == plan.schedule.cost
    with pytest.raises(pb.BudgetError):
        pb.plan(steps, state=1000, tape=tape, memory=minimum - 1, **more)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 300), st.integers(1, 50), st.integers(1, 200), st.integers(0, 5000), st.booleans())
def test_plans_keep_their_budgets_and_their_bounds(steps, state, tape, memory, with_disk):
    more = {"disk": 20 * state, "disk_write": 40.0, "disk_read": 60.0} if with_disk else {}
    problem = {"state": state, "tape": tape, "forward": 1.0, "backward": 1.5, **more}
    smallest = _smallest(steps, problem)
    if memory < smallest:
        with pytest.raises(pb.BudgetError, match="need at least"):
            pb.plan(steps, memory=memory, **problem)
        memory = smallest
    plan = pb.plan(steps, memory=memory, **problem)
    assert plan.peak["memory"] <= memory
    assert plan.peak.get("disk", 0) <= 20 * state
    assert plan.bound <= plan.time * (1 + 1e-12)
    assert plan.time >= steps * 2.5 * (1 - 1e-12)
    counted = pb.check(plan.schedule)
    assert counted == plan.schedule.cost
    if steps:
        held = counted.peaks[0] * state
        assert held + 2 * state + (0 if isinstance(plan.schedule, pb.StoreAll) else tape) <= memory + tape


def _smallest(steps, problem):
    """The smallest budget, as the error for none at all names it."""
    try:
        pb.plan(steps, memory=0, **problem)
    except pb.BudgetError as error:
        return error.minimum
    return 0


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(2, 300), st.integers(1, 40), st.integers(400, 4000))
def test_more_memory_is_never_slower(steps, tape, memory):
    less = pb.plan(steps, state=10, tape=tape, memory=memory)
    more = pb.plan(steps, state=10, tape=tape, memory=memory + 100)
    assert more.bound <= less.bound * (1 + 1e-12)
    assert more.time <= less.time * 1.02


def test_overlap_hides_transfers():
    without = pb.plan(2000, overlap=False, **EXAMPLE)
    assert pb.plan(2000, **EXAMPLE).time <= without.time


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": -1}, "steps must be a whole number"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"state": "4 apples"}, "unknown unit 'apples'"),
        ({"state": 0}, "state must be at least one byte"),
        ({"memory": "-1GB"}, "not a size"),
        ({"forward": "fast"}, "expected seconds"),
        ({"disk": "1TB"}, "missing: disk_write, disk_read"),
        ({"disk": "1TB", "disk_write": 0, "disk_read": 1, "forward": 1}, "disk_write must be more than 0"),
        ({"disk": "1TB", "disk_write": 1, "disk_read": 1}, "give forward, the seconds of one step"),
    ],
)
def test_bad_arguments_say_what_is_accepted(change, message):
    with pytest.raises(ValueError, match=message):
        pb.plan(**({"steps": 100, "state": "1GB", "memory": "10GB"} | change))


def test_a_plan_holds_plain_values():
    plan = pb.plan(100, state=8, memory=80)
    assert json.dumps({"peak": plan.peak, "time": plan.time, "bound": plan.bound, "forwards": plan.forwards})
