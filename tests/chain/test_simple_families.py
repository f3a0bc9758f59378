"""Storing everything, and evenly spaced snapshots."""

from __future__ import annotations

import pytest

from pebbling.chain import EndForward, Periodic, StoreAll, Turn, check


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_storing_everything_runs_every_step_once(steps):
    cost = check(StoreAll(steps))
    assert (cost.forwards, cost.advances, cost.stores, cost.peak) == (steps, 0, 0, steps)


def test_nothing_to_do_is_one_action():
    assert list(StoreAll(0)) == [EndForward()] == list(Periodic(0, 3))


@pytest.mark.parametrize("slots", range(1, 15))
def test_periodic_covers_every_step_with_one_extra_sweep_at_most(slots):
    for steps in range(1, 40):
        counted = check(Periodic(steps, slots))
        longest = -(-steps // min(slots, steps))
        assert counted.forwards == 2 * steps - longest
        assert counted.peak <= slots
        assert counted.tapes == longest


def test_a_million_steps_in_a_thousand_segments_are_counted_and_found():
    schedule = Periodic(10**6, 1000)
    assert schedule.cost.forwards == 2 * 10**6 - 1000
    assert next(schedule.since(schedule.seek(500_500))).step == 500_500


def test_store_all_streams_any_length():
    schedule = StoreAll(10**9)
    assert schedule.cost.forwards == 10**9
    assert next(schedule.since(schedule.seek(5))).step == 5
    assert not any(isinstance(action, Turn) for action in StoreAll(10))


@pytest.mark.parametrize("make", [lambda: Periodic(5, 0), lambda: Periodic(-5, 1), lambda: StoreAll(1.5)])
def test_bad_arguments_say_what_is_accepted(make):
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        make()
