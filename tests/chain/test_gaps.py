"""The way back over the gaps between held states: valid from any of them, and as cheap as its gaps."""

from __future__ import annotations

import tracemalloc
from itertools import islice, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain import Advance, EndForward, Free, Online, Restore, Snapshot, Turn, check
from pebbling.chain.binomial import advances
from pebbling.chain.gaps import way_back


@settings(deadline=None)
@given(st.integers(1, 60), st.sets(st.integers(1, 60), max_size=8), st.integers(0, 4))
def test_it_reverses_a_chain_from_any_states_that_are_held(steps, inner, more):
    steps_held = sorted({0} | {step for step in inner if step < steps})
    held = [(step, 7 * index) for index, step in enumerate(steps_held)]
    slots = len(held) + more
    back = list(way_back(held, steps, slots, [f"spare {k}" for k in range(more)]))
    assert check([*sweep(held, steps), EndForward(), *back]).peak <= slots
    lengths = [stop - start for start, stop in pairwise([*steps_held, steps])]
    expected = sum(advances(length, slots - index) for index, length in enumerate(lengths))
    assert sum(action.stop - action.start for action in back if type(action) is Advance) == expected


def sweep(held, steps):
    at = 0
    for step, slot in held:
        if step > at:
            yield Advance(at, step)
        yield Snapshot(step, slot, 0)
        at = step
    if steps > at:
        yield Advance(at, steps)


def test_a_state_behind_the_end_is_freed_and_nothing_else():
    """As when the last step was reversed from the working state."""
    assert list(way_back([(0, "a"), (1, "b")], 1, 2)) == [
        Free(1, "b", 0),
        Restore(0, "a", 0),
        Free(0, "a", 0),
        Turn(0),
    ]


def test_the_actions_of_an_ended_loop_take_no_memory_that_grows_with_it():
    """Of 30 000 states some 9 000 are stored on the sweep; a list of these would take 400 kB and more."""
    plan = Online(50).ended(30_000)
    tracemalloc.start()
    for _ in plan:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000


def test_the_way_back_begins_at_once():
    plan = Online(30).ended(10**5)
    assert list(islice(plan.since(plan.end_forward), 2)) == list(islice(plan.way_back(), 2))
    assert next(plan.way_back()) == EndForward()
