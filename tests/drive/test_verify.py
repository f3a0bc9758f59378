"""Steps that do not replay what they did the first time are found out; those that do cost next to nothing."""

from __future__ import annotations

import re
from time import process_time

import numpy as np
import pytest
from drive_problems import advance, every_store, reverse, schedules_of, staged_of, start
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import Online, ReplayError, adjoint
from pebbling.chain import Mixed, Revolve, StoreAll
from pebbling.drive.verify import NOWHERE, first_replay

SEED = np.ones(7)


def with_global_noise():
    generator = np.random.default_rng(3)
    return lambda x, i: advance(x, i) + 1e-9 * generator.standard_normal(x.shape)


def with_hidden_counter():
    calls = 0

    def step(x, i):
        nonlocal calls
        calls += 1
        return advance(x, i) * (1 + 1e-12 * calls)

    return step


def with_cache():
    """Right the first time it is asked about a step, and stale the second time."""
    known = set()

    def step(x, i):
        result = advance(x, i) * (1 + 1e-15 * (i in known))
        known.add(i)
        return result

    return step


CULPRITS = (with_global_noise, with_hidden_counter, with_cache)


def replays(schedule):
    return first_replay(schedule) != NOWHERE


@pytest.mark.parametrize("culprit", CULPRITS)
@pytest.mark.parametrize("name", [*schedules_of(30, 4), *staged_of(30, 4)])
def test_last_catches_a_step_that_is_not_a_function_of_its_state(culprit, name, tmp_path):
    schedule = (schedules_of(30, 4) | staged_of(30, 4))[name]
    assert replays(schedule) == (name != "StoreAll")
    with every_store("Memory", tmp_path) as store:
        store = store if name in staged_of(30, 4) else None
        if not replays(schedule):
            adjoint(culprit(), reverse, start(), 30, SEED, schedule=schedule, store=store)
            return
        with pytest.raises(ReplayError, match="gave another result when it was run again"):
            adjoint(culprit(), reverse, start(), 30, SEED, schedule=schedule, store=store)
        adjoint(culprit(), reverse, start(), 30, SEED, schedule=schedule, store=store, verify=False)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 12))
def test_last_compares_one_state_wherever_there_is_a_replay(n, c):
    for schedule in schedules_of(n, c).values():
        result = adjoint(advance, reverse, start(), n, SEED, schedule=schedule)
        evaluated = result.report.advances - (n > 0)
        assert result.report.compared == (evaluated >= n and n > 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.integers(1, 12))
def test_last_catches_it_in_a_loop_of_unknown_length(n, c):
    replayed = Online(c).ended(n).cost.advances > n
    result = adjoint(advance, reverse, start(), lambda x, i: i < n, SEED, slots=c)
    assert result.report.compared == replayed
    if replayed:
        with pytest.raises(ReplayError, match="gave another result"):
            adjoint(with_global_noise(), reverse, start(), lambda x, i: i < n, SEED, slots=c)


@pytest.mark.parametrize("name", schedules_of(30, 4))
@pytest.mark.parametrize("step", [0, 7, 16])
def test_all_names_the_step_and_the_leaf(name, step):
    seen = set()

    def forward(s, i):
        extra = 1e-15 if i == step and i in seen else 0.0
        seen.add(i)
        return {"u": advance(s["u"], i), "v": (s["v"][0] + 1, s["v"][1] * 0.9 + extra)}

    state = {"u": start(), "v": (np.zeros(3), np.ones(2))}
    schedule = schedules_of(30, 4)[name]
    if not replays(schedule):
        adjoint(forward, lambda s, a, i: a, state, 30, SEED, schedule=schedule, verify="all")
        return
    message = f"step {step} gave another result when it was run again: the state before step {step + 1} differs in "
    with pytest.raises(ReplayError, match="^" + re.escape(message + "state['v'][1]. ")):
        adjoint(forward, lambda s, a, i: a, state, 30, SEED, schedule=schedule, verify="all")
    seen.clear()
    adjoint(forward, lambda s, a, i: a, state, 30, SEED, schedule=schedule, verify=False)


def test_all_compares_every_replayed_state_in_loops_of_unknown_length():
    result = adjoint(advance, reverse, start(), lambda x, i: i < 40, SEED, slots=4, verify="all")
    assert result.report.compared >= result.report.advances - 40 > 0


def test_a_state_that_gets_another_shape_is_told():
    seen = set()

    def forward(s, i):
        again = i in seen
        seen.add(i)
        return [s[0] * 1.1, *([1.0] if again and i == 3 else [])]

    with pytest.raises(ReplayError, match="2 leaves instead of 1"):
        adjoint(forward, lambda s, a, i: a, [1.0], 9, 1.0, slots=1, verify="all")


@pytest.mark.parametrize("verify", ["first", True, None, 0, 1, "", "ALL", np.ones(3), ["last"]])
def test_other_choices_are_refused_before_anything_runs(verify):
    def never(x, i):
        raise AssertionError("ran")

    with pytest.raises(ValueError, match="verify must be 'last', 'all' or False"):
        adjoint(never, reverse, start(), 5, SEED, memory="1MB", verify=verify)


def test_the_first_replay_is_found_behind_any_number_of_tapes():
    assert first_replay(StoreAll(10**6)) == NOWHERE
    assert first_replay(Revolve(10**5, 10**5)) == NOWHERE
    far = Mixed(100_000, 60_000)
    assert 0 < first_replay(far) < 100_000
    begun = process_time()
    first_replay(Revolve(10**6, 100))
    assert process_time() - begun < 0.5
