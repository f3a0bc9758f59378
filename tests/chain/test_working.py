"""Steps that need room while they run: the plan fits with that room counted, and none that fits is faster."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pebbling.chain import Uneven, Working, check, rotor
from pebbling.chain.actions import Advance, Free, Record, Restore, Reverse, Snapshot, Turn
from pebbling.chain.grid import even_grid
from pebbling.chain.working import gates_of, least_memory
from pebbling.errors import BudgetError


def least_time(forward, backward, state, tape, working, memory):
    """Time by trying everything, with the room that each choice needs written out."""

    def behind(last):
        return sum(working.left[last + 1 :])

    @cache
    def least(start, stop, memory):
        last = stop - 1
        if stop - start == 1:
            fits = working.turn[start] + behind(start) + working.left[start] <= memory
            return forward[start] + backward[start] if fits else math.inf
        best = math.inf
        recording = state[start] + working.ahead[start] + behind(last)
        reversing = tape[start] + working.back[start] + behind(start) + working.left[start]
        if max(recording, reversing, tape[start]) <= memory:
            best = forward[start] + backward[start] + least(start + 1, stop, memory - tape[start])
        for split in range(start + 1, stop):
            running = [working.ahead[start], *[state[k] + working.ahead[k] for k in range(start + 1, split)]]
            if state[start] + max(running) + behind(last) <= memory:
                time = (
                    sum(forward[start:split]) + least(split, stop, memory - state[start]) + least(start, split, memory)
                )
                best = min(best, time)
        return best

    return least(0, len(forward), memory)


def peak(schedule, state, tape, working):
    """The most that is held at a time, going through the actions."""
    kept, tapes, left, most = {}, set(), 0, 0
    for action in schedule:
        held = sum(state[step] for step in set(kept.values())) + sum(tape[step] for step in tapes) + left
        now = 0
        match action:
            case Snapshot(step, slot, _):
                kept[slot] = step
            case Free(_, slot, _):
                del kept[slot]
            case Advance(start, stop):
                for step in range(start, stop):
                    now = max(now, working.ahead[step] + (0 if step in kept.values() else state[step]))
            case Record(step):
                now = working.ahead[step] + (0 if step in kept.values() else state[step])
                tapes.add(step)
            case Turn(step):
                now = working.turn[step] + working.left[step] - (state[step] if step in kept.values() else 0)
                left += working.left[step]
            case Reverse(step):
                now = working.back[step] + working.left[step]
                tapes.remove(step)
                left += working.left[step]
            case Restore():
                pass
        most = max(most, held + now)
    return most


@st.composite
def problems(draw, most=8):
    """Costs and sizes; a turn holds the input and the tape of its step, a reversal its input."""
    steps = draw(st.integers(1, most))
    size = st.lists(st.integers(0, 6), min_size=steps, max_size=steps)
    forward, backward, state, tape, ahead, turn, back, left = [draw(size) for _ in range(8)]
    turn = [one + held + made for one, held, made in zip(turn, state, tape)]
    back = [one + held for one, held in zip(back, state)]
    return forward, backward, state, tape, Working(ahead, turn, back, left)


@given(problems(), st.integers(0, 40))
@settings(deadline=None, max_examples=300)
def test_fits_and_none_is_faster(problem, memory):
    forward, backward, state, tape, working = problem
    expected = least_time(*problem, memory)
    if expected == math.inf:
        with pytest.raises(BudgetError):
            Uneven(forward, backward, state=state, tape=tape, memory=memory, working=working)
        return
    schedule = Uneven(forward, backward, state=state, tape=tape, memory=memory, working=working)
    assert check(schedule).time == expected
    assert peak(schedule, state, tape, working) <= memory


@given(problems())
@settings(deadline=None, max_examples=100)
def test_the_least_memory_is_where_plans_begin(problem):
    *_, state, tape, working = problem
    least = least_memory(state, tape, working)
    assert least_time(*problem, least) < math.inf
    assert least == 0 or least_time(*problem, least - 1) == math.inf


@given(problems(), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_a_refusal_names_a_memory_that_works(problem, units):
    forward, backward, state, tape, working = problem
    sizes = {"state": state, "tape": tape, "working": working, "units": units}
    least = least_memory(state, tape, working)
    assume(least > 0)
    with pytest.raises(BudgetError) as refused:
        Uneven(forward, backward, memory=least / 2, **sizes)
    assert refused.value.minimum >= least
    again = Uneven(forward, backward, memory=refused.value.minimum, **sizes)
    assert peak(again, state, tape, working) <= refused.value.minimum


@given(problems(), st.integers(1, 40))
@settings(deadline=None, max_examples=60)
def test_loops_choose_alike(problem, memory):
    forward, backward, state, tape, working = problem
    grid, unit = even_grid(state, tape, memory, 99)
    gates = gates_of(state, tape, working, unit)
    with pytest.MonkeyPatch.context() as patch:
        vectors = rotor.solve(forward, backward, grid, gates)
        patch.setattr(rotor, "_fill", rotor._fill_loop)
        assert rotor.solve(forward, backward, grid, gates) == vectors


def test_sizes_of_any_kind_round_up():
    working = Working([0.3, 0.4, 0.2], [1.5, 1.7, 1.9], [0.7, 0.9, 0.8], [0.1, 0.1, 0.1])
    state, tape = [0.35, 0.45, 0.25], [0.6, 0.7, 0.8]
    for memory in (2.5, 3.0, 4.0):
        schedule = Uneven([1, 1, 1], [1, 1, 1], state=state, tape=tape, memory=memory, working=working, units=200)
        assert peak(schedule, state, tape, working) <= memory


def test_what_is_left_behind_counts_where_nothing_else_does():
    working = Working([0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 4])
    sizes = {"state": [0, 0, 0], "tape": [9, 9, 9], "working": working}
    with pytest.raises(BudgetError) as refused:
        Uneven([1, 1, 1], memory=3, **sizes)
    assert refused.value.minimum == 4
    schedule = Uneven([1, 1, 1], memory=4, **sizes)
    assert check(schedule).time == least_time([1, 1, 1], [0, 0, 0], *list(sizes.values())[:2], working, 4)


def test_working_says_nothing_where_slots_are_counted():
    with pytest.raises(ValueError, match="working says nothing where slots are counted"):
        Uneven([1, 1], slots=1, working=Working([0, 0], [0, 0], [0, 0], [0, 0]))
