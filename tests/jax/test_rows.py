"""Rows run on a toy machine: every step is reversed from its own state, for the evaluations that the plan promises."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pebbling as pb
from pebbling.chain import binomial
from pebbling.jax import planner
from pebbling.jax.rows import binomial_rows, schedule_rows


def run(rows, steps):
    """Run rows with the number of a step for its state; the number of advances and of snapshots written."""
    slots: list[int | None] = [0] + [None] * (rows.slots - 1)
    advances = 0
    state = 0
    for start, ahead, store, length in rows.forward:
        assert state == start
        state, advances = state + ahead, advances + ahead
        for j in range(length):
            state, advances = state + 1, advances + 1
            slots[store + j] = state
    advances += steps - 1 - state
    todo = steps - 1
    for load, start, ahead, store, length, top, last, back in rows.backward:
        assert slots[load] == start
        state, advances = start + ahead, advances + ahead
        for j in range(length):
            state, advances = state + 1, advances + 1
            slots[store + j] = state
        for j in range(back):
            assert slots[top - j] == last - j == todo
            todo -= 1
    assert todo == -1
    return advances


@given(st.integers(1, 300), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_binomial_rows_reverse_everything_with_the_fewest_advances(steps, slots):
    rows = binomial_rows(steps, slots)
    assert run(rows, steps) == binomial.advances(steps, slots)
    assert rows.slots <= slots + 1


@given(st.integers(1, 120), st.integers(1, 12), st.sampled_from(["runs", "writes"]))
@settings(max_examples=150, deadline=None)
def test_rows_of_any_revolve(steps, slots, prefer):
    rows = schedule_rows(pb.Revolve(steps, slots, prefer=prefer))
    assert run(rows, steps) == binomial.advances(steps, slots)
    assert rows.slots <= slots + 1


@given(st.integers(1, 120), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_both_ways_to_the_rows_of_revolve_agree(steps, slots):
    read, made = schedule_rows(pb.Revolve(steps, slots, prefer="runs")), binomial_rows(steps, slots)
    assert run(read, steps) == run(made, steps)
    assert read.slots == made.slots
    assert len(made.backward) <= len(read.backward)


@given(st.integers(1, 80), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_rows_of_periodic(steps, slots):
    run(schedule_rows(pb.Periodic(steps, slots)), steps)
    run(schedule_rows(pb.StoreAll(steps)), steps)


def test_leaves_are_long():
    assert len(binomial_rows(1000, 32).backward) <= 105
    assert len(schedule_rows(pb.Revolve(1000, 32)).backward) > 300


def test_no_rows_without_steps():
    with pytest.raises(ValueError, match="0 steps"):
        schedule_rows(pb.Revolve(0, 3))
    assert binomial_rows(1, 1).backward.dtype == np.int32


def planned(steps, slots):
    """The rows of the way back as they are planned while a program runs."""
    positions = np.full(slots + 1, planner.NOWHERE)
    positions[0] = 0
    for start, ahead, store, length in binomial_rows(steps, slots).forward:
        positions[store : store + length] = start + ahead + 1 + np.arange(length)
    top = int(np.sum(positions < planner.NOWHERE)) - 1
    held = planner.hold(jnp.asarray(positions), top, jnp.int32(steps))
    row = jax.jit(lambda held, top: planner.back_row(slots, held, top, jnp.int32(0)))
    place = jax.jit(lambda held, vector: planner.place(held, planner.Marks(vector)))
    found = []
    while planner.end(held, top) > 0:
        vector = row(held, top)
        held = place(held, vector)
        found.append(np.asarray(vector)[:-1].tolist())
        marks = planner.Marks(np.asarray(vector))
        top = marks.top - marks.until - 1
    return found


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (9, 1), (40, 2), (90, 3), (90, 5), (200, 9), (60, 30), (30, 30)])
def test_rows_planned_at_run_time_are_those_of_the_table(steps, slots):
    row = planner.Row(*binomial_rows(steps, slots).backward.T)
    listed = np.stack(planner.marks(row, 0, 0)[:-1], 1).tolist()
    found = planned(steps, slots)
    assert len(found) == len(listed)
    for mine, other in zip(found, listed):
        reverses = other[4] > other[3]
        assert mine[: 8 if reverses else 6] == other[: 8 if reverses else 6]


@pytest.mark.parametrize("slots", [2, 5, 10, 40])
def test_the_split_at_run_time_is_the_largest_optimal_one(slots):
    """For all lengths that a loop of up to 2³¹ steps comes to."""
    most = next(r for r in range(2, 15) if comb(slots + r, r) > 2**31 or r == 14)
    for top in {0, slots // 2, slots - 1}:
        left = slots - top
        far = [comb(left + r, r) + more for r in range(2, most) for more in (0, 1)]
        lengths = np.array([*range(left + 2, 60), *(n for n in far if n < 2**31 - 1)], np.int32)
        found = jax.jit(jax.vmap(lambda n, top=top: planner.split(slots, n, jnp.int32(top))))(lengths)
        expected = [n - 1 if left == 1 else binomial.longest_runs(n, left) for n in lengths.tolist()]
        assert found.tolist() == expected
