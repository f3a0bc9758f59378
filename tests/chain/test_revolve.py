"""Binomial checkpointing against brute force and published counts."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from time import perf_counter

import brute
import pytest

from pebbling.chain import Advance, Revolve, Turn, check, stream
from pebbling.chain import binomial as b

# steps, slots, advances, stores: published counts of Revolve
PUBLISHED = [
    (10, 3, 15, 6),
    (50, 7, 105, 28),
    (100, 3, 490, 28),
    (100, 4, 374, 35),
    (500, 4, 3213, 165),
    (500, 100, 898, 399),
    (10_000, 500, 19_498, 9_499),
]
ADVANCES = [
    (100, 5, 316),
    (225, 15, 522),
    (1000, 10, 3636),
    (1000, 16, 2860),
    (1000, 30, 2472),
    (10**4, 20, 37_976),
    (10**6, 100, 3_817_896),
    (10**8, 10, 2_113_902_240),
]


@pytest.mark.parametrize(("steps", "slots", "advances", "stores"), PUBLISHED)
def test_published_counts(steps, slots, advances, stores):
    cost = Revolve(steps, slots).cost
    assert (cost.advances, cost.stores, cost.forwards) == (advances, stores, steps + advances)


@pytest.mark.parametrize(("steps", "slots", "advances"), ADVANCES)
def test_known_advances(steps, slots, advances):
    assert Revolve(steps, slots).cost.advances == advances


@pytest.mark.parametrize("slots", range(1, 8))
@pytest.mark.parametrize("prefer", ["writes", "runs"])
def test_advances_and_writes_equal_brute_force(slots, prefer):
    for steps in range(70):
        counted = check(Revolve(steps, slots, prefer))
        assert counted.advances == brute.advances(steps, slots)
        if prefer == "writes":
            assert counted.stores == brute.stores(steps, slots)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_no_play_of_the_game_at_all_is_better(slots):
    for steps in range(1, 9):
        assert Revolve(steps, slots).cost.forwards == brute.best_anyhow(steps, slots)


def test_the_optimal_first_advances_are_the_published_interval():
    for c in range(2, 6):
        for n in range(2, 60):
            r = b.repeats(n, c)
            low = max(b.beta(c, r - 2), n - b.beta(c - 1, r), 1)
            high = min(b.beta(c, r - 1), n - b.beta(c - 1, r - 1))
            optimal = [j for j in range(1, n) if j + b.advances(j, c) + b.advances(n - j, c - 1) == b.advances(n, c)]
            assert optimal == list(range(low, high + 1))
            assert b.longest_runs(n, c) == high


def test_repeats_is_the_least_r_whose_reach_suffices():
    for c in range(1, 9):
        for n in [*range(1, 200), 10**4, 10**6]:
            if c == 1 and n > 1000:
                continue
            r = b.repeats(n, c)
            assert b.beta(c, r) >= n
            assert r == 0 or b.beta(c, r - 1) < n


def test_default_slots_advance_no_step_more_than_twice():
    for n in range(1, 500):
        c = b.default_slots(n)
        assert b.repeats(n, c) <= 2
        assert c == 1 or b.repeats(n, c - 1) > 2


@pytest.mark.parametrize("slots", [1, 2, 3, 10, 1000])
def test_the_direct_stream_is_that_of_the_spans(slots):
    for steps in [*range(30), 100]:
        for prefer in ("writes", "runs"):
            schedule = Revolve(steps, slots, prefer)
            assert list(schedule) == list(stream.actions(schedule))


def test_long_runs_reverse_many_neighbours_at_once():
    def leaves(schedule):
        """How often the way back has to run steps forward before it can go on."""
        return sum(isinstance(action, Advance) and action.stop - action.start > 1 for action in schedule)

    assert leaves(Revolve(1000, 32, "runs")) < leaves(Revolve(1000, 32)) / 4


@pytest.mark.parametrize(("steps", "slots"), [(10**9, 1), (10**9, 2), (10**9, 50), (10**9, 10**9), (0, 1), (1, 1)])
def test_costs_of_extremes_are_immediate(steps, slots):
    begun = perf_counter()
    cost = Revolve(steps, slots).cost
    assert perf_counter() - begun < 0.1
    assert cost.forwards == steps + b.advances(steps, slots)
    assert cost.peak == min(slots, max(steps - 1, 0))


def test_a_stream_of_ten_million_steps_starts_at_once_and_stays_small():
    schedule = Revolve(10**7, 100)
    begun = perf_counter()
    next(iter(schedule))
    assert perf_counter() - begun < 0.01
    peaks = []
    for steps in (10**4, 10**7):
        tracemalloc.start()
        for _ in islice(Revolve(steps, 20), 200_000):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 200_000


def test_seek_far_into_a_long_stream_is_quick_and_lands_on_the_turn():
    schedule = Revolve(10**7, 100)
    begun = perf_counter()
    position = schedule.seek(1_234_567)
    assert perf_counter() - begun < 0.2
    assert next(schedule.since(position)) == Turn(1_234_567)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 0), "slots must be a whole number of at least 1, not 0"),
        ((-1, 3), "steps must be a whole number of at least 0, not -1"),
        ((2.5, 3), "steps must be a whole number"),
        ((10.0, 3), "steps must be a whole number"),
        ((True, 3), "steps must be a whole number"),
        (("10", 3), "steps must be a whole number"),
        ((10, None), "slots must be a whole number"),
        ((10, 3, "speed"), "prefer must be 'writes' or 'runs', not 'speed'"),
    ],
)
def test_bad_arguments_say_what_is_accepted(arguments, message):
    with pytest.raises(ValueError, match=message):
        Revolve(*arguments)
