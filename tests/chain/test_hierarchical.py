"""Snapshots in tiers: the fastest plan, what it claims of itself, and its stream."""

from __future__ import annotations

import pickle
import time
from functools import cache
from heapq import heappop, heappush
from itertools import islice, pairwise, product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain.actions import Free, Restore, Snapshot, Turn, decode
from pebbling.chain.check import ChainMachine, check
from pebbling.chain.cost import Tier
from pebbling.chain.hierarchical import Hierarchical
from pebbling.chain.hierarchical.lengths import LengthCurve, Lengths
from pebbling.chain.hierarchical.price_search import Market
from pebbling.chain.hierarchical.problem import TierProblem
from pebbling.chain.revolve import Revolve
from pebbling.chain.tally import Counter
from pebbling.errors import BudgetError

DISK = [Tier(2), Tier(2, 2, 2)]


def least_time(steps: int, tiers: list[Tier], forward: float, backward: float) -> float:
    """The recurrence of H-Revolve as it is written down, one split after the other."""
    levels = [(steps if tier.slots is None else tier.slots, tier.write, tier.read) for tier in tiers]

    @cache
    def opened(level: int, slots: int, n: int) -> float:
        if level < 0:
            return backward if n == 1 else inf
        below = opened(level - 1, levels[level - 1][0], n)
        return below if slots == 0 else min(below, levels[level][1] + kept(level, slots, n))

    @cache
    def kept(level: int, slots: int, n: int) -> float:
        splits = (
            j * forward + opened(level, slots - 1, n - j) + levels[level][2] + kept(level, slots, j)
            for j in range(1, n)
        )
        return min([opened(level - 1, levels[level - 1][0], n), *splits])

    return opened(len(tiers) - 1, levels[-1][0], steps) if steps else 0.0


def least_times(steps: int, tiers: list[Tier], forward: float, backward: float) -> np.ndarray:
    """The same for all lengths up to ``steps``, all slots of a tier at once."""
    below = np.full(steps + 1, inf)
    below[1] = backward
    for tier in tiers:
        slots = steps if tier.slots is None else tier.slots
        opened = np.tile(below, (slots + 1, 1))
        kept = opened.copy()
        for n in range(2, steps + 1):
            splits = np.arange(1, n) * forward + opened[:-1, n - 1 : 0 : -1] + tier.read + kept[1:, 1:n]
            kept[1:, n] = np.minimum(below[n], splits.min(axis=1))
            opened[1:, n] = np.minimum(below[n], tier.write + kept[1:, n])
        below = opened[-1]
    return below


def least_time_of_any_play(steps: int, tiers: list[Tier], forward: float, backward: float) -> float:
    """The least time of all valid plays, by a search over the states of the game that knows nothing of splits."""
    start = (steps, 0, (frozenset[int](),) * len(tiers))
    best, queue, count = {start: 0.0}, [(0.0, 0, start)], 0
    while True:
        time_so_far, _, state = heappop(queue)
        end, working, stored = state
        if end == 0:
            return time_so_far
        moves = []
        if working is not None and working == end - 1:
            moves.append((backward, (end - 1, None, tuple(steps - {end - 1} for steps in stored))))
        elif working is not None:
            moves.append((forward, (end, working + 1, stored)))
        for index, tier in enumerate(tiers):
            others = [(stored[:index], stored[index + 1 :])]
            if working is not None and working not in stored[index]:
                dropped = (
                    [set()] if tier.slots is None or len(stored[index]) < tier.slots else [{s} for s in stored[index]]
                )
                for (before, after), drop in product(others, dropped):
                    held = (stored[index] - drop) | {working}
                    if tier.slots is None or len(held) <= tier.slots:
                        moves.append((tier.write, (end, working, (*before, held, *after))))
            moves += [(tier.read, (end, step, stored)) for step in stored[index] if step != working]
        for cost, after in moves:
            if time_so_far + cost < best.get(after, inf):
                best[after] = time_so_far + cost
                count += 1
                heappush(queue, (best[after], count, after))


def random_tiers(rng: np.random.Generator, count: int, most: int = 4) -> list[Tier]:
    costs = [0, 0, 0.5, 1, 2, 5, 20]
    tiers = [Tier(int(rng.integers(0 if k else 1, most)), rng.choice(costs), rng.choice(costs)) for k in range(count)]
    return tiers if rng.random() < 0.8 else [*tiers[:-1], Tier(None, tiers[-1].write, tiers[-1].read)]


@pytest.mark.parametrize(
    ("steps", "slots", "write", "read", "forward", "backward", "expected"),
    [
        (60, [2, 2], [0, 2], [0, 2], 1, 1, 267),
        (60, [2, 2], [0, 2], [0, 2], 1, 3, 387),
        (100, [3, 3], [0, 10], [0, 1], 1, 5, 841),
        (100, [3, 3], [0, 2], [0, 2], 2, 1, 710),
        (60, [1, 2, 3], [0, 1, 5], [0, 1, 5], 1, 2, 343),
        (10_000, [5, 5], [0, 2], [0, 2], 1, 1, 68_588),
        (200, [2, None], [0, 10], [0, 1], 1, 1, 938),
        (300, [3, None], [0, 100], [0, 5], 1, 1, 1959),
    ],
)
def test_known_least_times(steps, slots, write, read, forward, backward, expected):
    schedule = Hierarchical(steps, [Tier(*tier) for tier in zip(slots, write, read)], forward, backward)
    assert schedule.cost.time == expected
    assert schedule.exact
    assert schedule.bound == expected
    assert schedule.gap == 0.0
    assert check(schedule) == schedule.cost


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_least_time_of_the_plain_recurrence(count):
    rng = np.random.default_rng(count)
    for _ in range(40):
        tiers, forward, backward = random_tiers(rng, count), rng.choice([0.5, 1, 3]), rng.choice([0, 1, 4])
        for steps in (*range(1, 13), 19, 28):
            schedule = Hierarchical(steps, tiers, forward, backward)
            assert schedule.cost.time == least_time(steps, tiers, forward, backward), schedule
            assert schedule.exact


def test_the_least_time_for_costs_with_many_digits():
    rng = np.random.default_rng(7)
    for _ in range(60):
        tiers = [Tier(int(rng.integers(1, 4)), *(rng.exponential(3, 2) if k else (0, 0))) for k in range(2)]
        forward, backward, steps = rng.random() + 0.1, rng.random(), int(rng.integers(2, 45))
        schedule = Hierarchical(steps, tiers, forward, backward)
        assert schedule.cost.time == pytest.approx(least_time(steps, tiers, forward, backward), rel=1e-13)
        assert schedule.exact


@pytest.mark.parametrize(
    ("steps", "tiers"),
    [
        (900, [Tier(2), Tier(2, 100, 100)]),
        (900, [Tier(3), Tier(40, 3, 4)]),
        (900, [Tier(10), Tier(20, 7.25, 5.5)]),
        (900, [Tier(3, 1, 2), Tier(5, 20, 20)]),
        (900, [Tier(1, 5, 0), Tier(3, 5, 1)]),
        (700, [Tier(3), Tier(3, 100, 1), Tier(3, 300, 300)]),
        (250, [Tier(3), Tier(None, 100, 5)]),
        (250, [Tier(2), Tier(2, 3, 3), Tier(None, 20, 20)]),
    ],
    ids=str,
)
def test_the_least_times_of_longer_chains(steps, tiers):
    expected = least_times(steps, tiers, 2, 3)
    assert expected[30] == least_time(30, tiers, 2, 3)
    rng = np.random.default_rng(steps)
    for n in (steps, *rng.integers(2, steps, 40).tolist()):
        schedule = Hierarchical(n, tiers, 2, 3)
        assert schedule.cost.time == expected[n], n
        assert schedule.exact


def test_no_play_at_all_is_faster_where_tiers_are_listed_fastest_first():
    rng = np.random.default_rng(3)
    costs = [0, 0.5, 1, 2, 3, 5]
    for _ in range(25):
        count = int(rng.integers(1, 4))
        writes, reads = np.sort(rng.choice(costs, count)), np.sort(rng.choice(costs, count))
        tiers = [Tier(int(rng.integers(1, 4)), *transfer) for transfer in zip(writes, reads)]
        steps, forward = int(rng.integers(2, 7)), rng.choice([0.5, 1, 2])
        schedule = Hierarchical(steps, tiers, forward, 1)
        assert schedule.cost.time == least_time_of_any_play(steps, tiers, forward, 1), schedule


def test_every_method_keeps_what_it_says():
    rng = np.random.default_rng(11)
    gaps = 0
    for _ in range(80):
        tiers, backward = random_tiers(rng, int(rng.integers(2, 4))), rng.choice([0, 1, 4])
        steps = int(rng.integers(2, 40))
        least = least_time(steps, tiers, 1, backward)
        hull = Hierarchical(steps, tiers, 1, backward, method="hull")
        assert hull.bound <= least <= hull.cost.time
        assert hull.exact == (hull.bound == hull.cost.time)
        assert hull.gap == pytest.approx(hull.cost.time / hull.bound - 1)
        assert check(hull) == hull.cost
        gaps += not hull.exact
        exact = Hierarchical(steps, tiers, 1, backward, method="exact")
        assert exact.exact
        assert exact.cost.time == least
    assert gaps > 5


@given(
    st.integers(0, 120),
    st.lists(st.tuples(st.none() | st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    st.sampled_from([0.25, 1, 2.5]),
    st.sampled_from(["auto", "hull"]),
)
@settings(max_examples=200, deadline=None)
def test_the_machine_accepts_the_stream_within_every_tier_and_counts_its_cost(steps, tiers, forward, method):
    if steps > 1 and all(slots == 0 for slots, _, _ in tiers):
        return
    schedule = Hierarchical(steps, [Tier(*tier) for tier in tiers], forward, 2, method)
    counted = check(schedule)
    assert counted == schedule.cost
    for peak, (slots, _, _) in zip(counted.peaks, tiers, strict=True):
        assert slots is None or peak <= slots
    one_by_one = Counter(schedule, schedule.model, lambda span: None).count(schedule.root)
    assert one_by_one == schedule.counter.count(schedule.root)


def test_forward_and_backward_costs_are_not_interchanged():
    cheap_forward, cheap_backward = Hierarchical(80, DISK, 1, 10), Hierarchical(80, DISK, 10, 1)
    assert cheap_forward.cost.time == least_time(80, DISK, 1, 10)
    assert cheap_backward.cost.time == least_time(80, DISK, 10, 1)
    assert cheap_forward.cost.time < cheap_backward.cost.time


def test_a_full_slow_tier_is_never_overfilled_and_its_snapshots_are_freed():
    for steps in range(2, 60, 3):
        schedule = Hierarchical(steps, [Tier(1), Tier(2, 1, 1)])
        held = 0
        for action in schedule:
            if isinstance(action, Snapshot | Free) and action.tier == 1:
                held += 1 if isinstance(action, Snapshot) else -1
                assert held <= 2
        assert held == 0


def test_slow_snapshots_are_freed_as_soon_as_they_are_read_for_the_last_time():
    actions = list(Hierarchical(200, [Tier(3), Tier(None, 5, 1)]))
    last_read = {action.step: i for i, action in enumerate(actions) if isinstance(action, Restore) and action.tier == 1}
    freed = {action.step: i for i, action in enumerate(actions) if isinstance(action, Free) and action.tier == 1}
    assert len(last_read) > 3
    assert all(freed[step] == last_read[step] + 1 for step in last_read)


@pytest.mark.parametrize(("steps", "slots"), list(product([1, 2, 7, 30, 200], [1, 2, 5])))
def test_one_free_tier_is_revolve(steps, slots):
    revolve = Revolve(steps, slots)
    for tiers in ([Tier(slots)], [Tier(slots), Tier(0, 1, 1)], [Tier(0, 3, 3), Tier(slots)]):
        schedule = Hierarchical(steps, tiers)
        assert (schedule.cost.advances, schedule.cost.time) == (revolve.cost.advances, revolve.cost.time)
        assert schedule.cost.stores == revolve.cost.stores
    both = Hierarchical(steps, [Tier(slots), Tier(3)])
    assert both.cost.time == Revolve(steps, slots + 3).cost.time


def test_time_falls_with_slots_and_rises_with_steps_and_transfers():
    def time_of(steps: int, fast: int, slow: int, write: float, read: float) -> float:
        return Hierarchical(steps, [Tier(fast), Tier(slow, write, read)]).cost.time

    for steps, fast, slow in product((9, 40, 111), (1, 2, 4), (1, 3, 6)):
        here = time_of(steps, fast, slow, 2, 3)
        assert time_of(steps, fast + 1, slow, 2, 3) <= here
        assert time_of(steps, fast, slow + 1, 2, 3) <= here
        assert time_of(steps + 1, fast, slow, 2, 3) >= here
        assert time_of(steps, fast, slow, 2.5, 3) >= here
        assert time_of(steps, fast, slow, 2, 3.5) >= here


def test_scaling_all_costs_scales_the_time_and_keeps_the_plan():
    plain = Hierarchical(500, [Tier(3), Tier(4, 7, 2)], 1, 3)
    scaled = Hierarchical(500, [Tier(3), Tier(4, 7 * 0.125, 2 * 0.125)], 0.125, 3 * 0.125)
    assert scaled.cost.time == plain.cost.time * 0.125
    assert list(scaled) == list(plain)


def test_the_bound_from_prices_is_the_convex_hull_of_the_least_times():
    tiers, steps = [Tier(2), Tier(3, 6, 2)], 60
    least = {n: least_time(n, tiers, 1, 1) for n in range(1, 2 * steps)}
    for n in range(2, steps):
        problem = TierProblem.of(n, tiers, 1.0, 1.0)
        bound = Market(problem).right_for(problem.root).bound(problem.root)
        chords = (
            least[a] + (least[b] - least[a]) * (n - a) / (b - a)
            for a in range(1, n + 1)
            for b in range(n, 2 * steps)
            if a < b
        )
        assert float(bound) == pytest.approx(min(least[n], *chords), abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_sums_of_curves_are_the_least_ones(one, two):
    curves = Lengths(200, inf)
    for repeat in (1, 12):
        first, second = (LengthCurve(1, np.repeat(np.array(heights, float), repeat)) for heights in (one, two))
        found = curves.joined(first, second)
        least: dict[int, float] = {}
        for (i, a), (j, b) in product(enumerate(first.excess), enumerate(second.excess)):
            least[i + j + 2] = min(a + b, least.get(i + j + 2, inf))
        assert [curves.at(found, n) for n in range(202)] == [least.get(n, inf) if n <= 200 else inf for n in range(202)]


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_chains_of_curves_are_the_least_ones(start, heights):
    curves = Lengths(60, inf)
    link, end = LengthCurve(start, np.array(heights, float)), LengthCurve(2, np.array([1.0, 0.0]))
    least = [inf] * 61
    for n in range(61):
        options = [least[n - start - i] + height + 0.5 for i, height in enumerate(heights) if n >= start + i]
        least[n] = min(curves.at(end, n) + 3, *options, inf)
    found = curves.chained(link, 0.5, end, 3.0)
    assert [curves.at(found, n) for n in range(61)] == least


@pytest.mark.parametrize(
    "schedule",
    [
        Hierarchical(3000, [Tier(3), Tier(None, 2, 2)]),
        Hierarchical(3000, [Tier(3), Tier(None, 2, 2)], method="hull"),
        Hierarchical(2000, [Tier(2), Tier(3, 2, 2), Tier(None, 30, 10)]),
        Hierarchical(2000, [Tier(3), Tier(20, 5, 5)]),
        Hierarchical(900, [Tier(2, 1, 1), Tier(None, 2, 2)]),
    ],
    ids=lambda schedule: f"{schedule.steps} {[tier.slots for tier in schedule.tiers]} {schedule.method}",
)
def test_positions_and_arrays_agree_with_the_stream(schedule):
    actions = list(schedule)
    assert [action for chunk in schedule.chunks() for action in decode(chunk)] == actions
    machine, places = ChainMachine(schedule.model), {schedule.steps - 1, schedule.steps // 3, 17, 1, 0}
    for index, action in enumerate(actions):
        if isinstance(action, Turn) and action.step in places:
            position = schedule.seek(action.step)
            assert position == index
            assert position.snapshots == machine.slots
            assert position.forwards == machine.advanced + machine.tapings
            assert list(islice(schedule.since(position), 50)) == actions[index : index + 50]
        machine.do(action)
    assert machine.finish() == schedule.cost


def test_a_million_steps_stream_as_they_are_counted():
    schedule = Hierarchical(10**6, [Tier(10), Tier(50, 5, 5)])
    chunks = [chunk[["start", "kind"]].copy() for chunk in schedule.chunks()]
    assert sum(map(len, chunks)) == schedule.counter.count(schedule.root).length
    turned = np.concatenate([chunk["start"][chunk["kind"] == 5] for chunk in chunks])
    assert np.array_equal(turned, np.arange(10**6)[::-1])


@pytest.mark.parametrize("slots", [10, 100, None])
def test_long_chains_are_planned_and_proven_in_no_time(slots):
    times = []
    for steps in (10**4, 10**6, 10**9):
        begin = time.process_time()
        schedule = Hierarchical(steps, [Tier(10), Tier(slots, 5, 5)], 1, 2)
        times.append(schedule.cost.time)
        assert time.process_time() - begin < 2
        assert schedule.exact
        assert schedule.cost.forwards == schedule.cost.advances + steps
    assert all(9 < later / earlier / ratio < 40 for (earlier, later), ratio in zip(pairwise(times), (10, 100)))


def test_a_gap_stays_small_where_the_proof_would_take_long():
    schedule = Hierarchical(1_405_230, [Tier(50), Tier(2, 555, 280), Tier(100, 2099, 2417)])
    assert not schedule.exact
    assert 0 < schedule.gap < 2e-3
    assert schedule.bound < schedule.cost.time
    assert schedule.gap == pytest.approx(schedule.cost.time / schedule.bound - 1)


def test_plans_are_values_without_what_was_computed_for_them():
    schedule = Hierarchical(5000, [Tier(3), Tier(5, 2, 2)])
    plain = pickle.dumps(schedule)
    assert schedule.cost.time > 0
    assert pickle.dumps(schedule) == plain
    again = pickle.loads(plain)
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.cost == schedule.cost
    assert schedule != Hierarchical(5000, [Tier(3), Tier(5, 2, 2)], backward=2)
    assert schedule.tiers == (Tier(3), Tier(5, 2, 2))


def test_no_steps_and_one_step_need_no_slot():
    for tiers in ([Tier(0)], [Tier(2), Tier(1, 1, 1)], [Tier(2, 3, 3)]):
        assert check(Hierarchical(0, tiers)).time == 0
        assert check(Hierarchical(1, tiers, backward=3)).time == 3
        assert Hierarchical(1, tiers).exact
        assert Hierarchical(0, tiers).gap == 0.0


def test_steps_without_slots_are_refused_with_the_smallest_budget():
    with pytest.raises(BudgetError, match="2 steps can't be reversed without a slot: 1 is needed") as caught:
        Hierarchical(2, [Tier(0), Tier(0, 1, 1)])
    assert caught.value.minimum == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "steps must be a whole number"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"tiers": []}, "at least one pebbling.Tier"),
        ({"tiers": [3, 4]}, "at least one pebbling.Tier"),
        ({"tiers": 3}, "at least one pebbling.Tier"),
        ({"forward": 0}, "forward must be a positive"),
        ({"forward": -1}, "forward must be a positive"),
        ({"backward": float("nan")}, "backward must be a zero or positive"),
        ({"method": "fast"}, "method must be one of 'auto', 'exact', 'hull'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Hierarchical(**{"steps": 10, "tiers": DISK, **arguments})


def test_the_example_that_explains_the_bound_is_true():
    """The one at the head of ``prices``: what plans earn at 4.5 a step, and the bounds that follow."""
    tiers = [Tier(2, write=2, read=1)]
    assert [Hierarchical(n, tiers).cost.time for n in range(1, 7)] == [1, 6, 10, 15, 19, 24]
    prices = {steps: Market(problem).right_for(problem.root) for steps, problem in _problems(tiers, 4, 5)}
    assert prices[4].price / prices[4].scale == 4.5
    earned, fewest, most = prices[4].offer(prices[4].top, 0)
    assert (earned / prices[4].scale, fewest, most) == (3.5, 1, 5)
    assert [float(prices[n].bound(prices[n].top)) for n in (4, 5)] == [14.5, 19]


def _problems(tiers, *lengths):
    return [(steps, TierProblem.of(steps, tiers, 1, 1)) for steps in lengths]
