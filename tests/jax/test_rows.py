"""Rows run on a toy machine: every step is reversed from its own state, for the evaluations that the plan promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pebbling as pb
from pebbling.chain import binomial
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
