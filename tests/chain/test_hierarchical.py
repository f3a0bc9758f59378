"""Snapshots in several tiers, against the plain recurrence and known values."""

from __future__ import annotations

import itertools
from functools import cache
from time import perf_counter

import pytest

from pebbling import BudgetError, Hierarchical, Revolve, Tier, check

# steps, slots, write, read, forward, backward, least time
KNOWN = [
    (60, [2, 2], [0, 2], [0, 2], 1, 1, 267),
    (60, [2, 2], [0, 2], [0, 2], 1, 3, 387),
    (100, [3, 3], [0, 10], [0, 1], 1, 5, 841),
    (100, [3, 3], [0, 2], [0, 2], 2, 1, 710),
    (60, [1, 2, 3], [0, 1, 5], [0, 1, 5], 1, 2, 343),
    (10**4, [5, 5], [0, 2], [0, 2], 1, 1, 68_588),
    (200, [2, None], [0, 10], [0, 1], 1, 1, 938),
    (300, [3, None], [0, 100], [0, 5], 1, 1, 1959),
]


def plan(steps, slots, write, read, forward=1, backward=1, **more):
    return Hierarchical(steps, [Tier(*tier) for tier in zip(slots, write, read)], forward, backward, **more)


def least_time(steps, slots, write, read, forward, backward):
    """The recurrence as it is written."""
    infinite = float("inf")

    @cache
    def opened(n, level, left):
        if level < 0:
            return backward if n == 1 else infinite
        below = opened(n, level - 1, slots[level - 1] if level else 0)
        return min(below, write[level] + split(n, level, left))

    @cache
    def kept(n, level, left):
        below = opened(n, level - 1, slots[level - 1] if level else 0)
        return min(below, split(n, level, left))

    @cache
    def split(n, level, left):
        if left == 0:
            return infinite
        return min(
            (j * forward + opened(n - j, level, left - 1) + read[level] + kept(j, level, left) for j in range(1, n)),
            default=infinite,
        )

    top = len(slots) - 1
    return opened(steps, top, slots[top])


@pytest.mark.parametrize("case", KNOWN)
def test_known_values(case):
    *problem, time = case
    schedule = plan(*problem)
    assert schedule.cost.time == time
    assert schedule.exact
    assert schedule.gap == 0
    if schedule.steps < 1000:
        assert check(schedule) == schedule.cost


COSTS = [(0, 2, 2), (0, 10, 1), (1, 3, 0), (0, 0.5, 0.25)]


@pytest.mark.parametrize(("forward", "backward"), [(1, 1), (1, 3), (2, 1)])
@pytest.mark.parametrize("slots", [(1, 1), (2, 1), (1, 3), (3, 2), (0, 2), (1, 1, 2)])
@pytest.mark.parametrize("costs", COSTS)
def test_the_time_equals_the_recurrence(slots, costs, forward, backward):
    write = [costs[0], costs[1], 4][: len(slots)]
    read = [0, costs[2], 3][: len(slots)]
    for steps in [*range(1, 12), 17, 26]:
        schedule = plan(steps, slots, write, read, forward, backward)
        counted = check(schedule)
        assert counted == schedule.cost
        assert counted.time == pytest.approx(least_time(steps, slots, write, read, forward, backward))
        assert schedule.bound <= counted.time + 1e-9
        assert all(peak <= room for peak, room in zip(counted.peaks, slots))


def test_the_hull_alone_carries_its_bound():
    for steps, c, w in itertools.product((10, 40, 90), (1, 3), (1, 20)):
        exact, rough = (plan(steps, [c, 2], [0, w], [0, 1], method=method) for method in ("exact", "hull"))
        assert check(rough) == rough.cost
        assert rough.bound <= exact.cost.time <= rough.cost.time
        assert rough.gap >= 0
        assert exact.exact


def test_one_tier_is_binomial():
    for steps in (0, 1, 2, 30):
        assert plan(steps, [4], [0], [0]).cost.forwards == Revolve(steps, 4).cost.forwards


def test_forward_and_backward_are_not_swapped():
    assert plan(60, [2, 2], [0, 2], [0, 2], 1, 3).cost.time != plan(60, [2, 2], [0, 2], [0, 2], 3, 1).cost.time


def test_long_plans_are_quick():
    begun = perf_counter()
    schedule = plan(10**6, [5, 5], [0, 2], [0, 2])
    assert schedule.cost.peaks == (5, 5)
    assert perf_counter() - begun < 1  # a tenth of it on a quiet machine, as the benchmark shows
    assert schedule.gap < 0.01


def test_bad_arguments_say_what_is_accepted():
    with pytest.raises(BudgetError, match="without a slot"):
        plan(5, [0, 0], [0, 1], [0, 1])
    with pytest.raises(ValueError, match="tiers must be"):
        Hierarchical(5, [])
    with pytest.raises(ValueError, match="method must be"):
        Hierarchical(5, [Tier(1)], method="magic")
    with pytest.raises(ValueError, match="write must be"):
        Tier(1, write=-1)
    with pytest.raises(ValueError, match="forward must be"):
        Hierarchical(5, [Tier(1)], forward=float("nan"))
