"""The invariants of the pebble game, for every family of schedules.

``PEBBLING_CASES=100000 pytest tests/chain/test_invariants.py`` runs that many cases of each.
"""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strategies
from pebbling.chain import (
    Advance,
    EndForward,
    Free,
    Hierarchical,
    Mixed,
    Record,
    Restore,
    Reverse,
    Revolve,
    Schedule,
    Snapshot,
    Tier,
    Turn,
    check,
    decode,
)
from pebbling.chain.check import ChainMachine

CASES = int(os.environ.get("PEBBLING_CASES", "150"))
many = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=CASES <= 1000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(strategies.schedules)
def test_the_machine_accepts_every_stream_and_counts_its_cost(schedule: Schedule) -> None:
    assert check(schedule) == schedule.cost


@many
@given(strategies.schedules)
def test_a_stream_is_the_same_every_time_and_as_arrays(schedule: Schedule) -> None:
    actions = list(schedule)
    assert actions == list(schedule)
    chunks = list(schedule.chunks())
    assert [action for chunk in chunks for action in decode(chunk)] == actions


@many
@given(strategies.schedules, st.data())
def test_seek_is_what_running_the_prefix_gives(schedule: Schedule, data: st.DataObject) -> None:
    if schedule.steps == 0:
        with pytest.raises(ValueError, match="not in this schedule"):
            schedule.seek(0)
        return
    step = data.draw(st.integers(0, schedule.steps - 1))
    position = schedule.seek(step)
    actions = list(schedule)
    assert actions[position] in (Turn(step), Reverse(step))
    machine = ChainMachine(schedule.model)
    for action in actions[:position]:
        machine.do(action)
    assert position.snapshots == machine.slots
    assert {s for tapes in position.tapes for s in tapes} == machine.tapes
    assert position.forwards == machine.advanced + machine.tapings


@many
@given(strategies.schedules, st.data())
def test_since_is_the_rest_of_the_stream(schedule: Schedule, data: st.DataObject) -> None:
    actions = list(schedule)
    index = data.draw(st.integers(0, len(actions)))
    assert list(schedule.since(index)) == actions[index:]


@many
@given(strategies.schedules)
def test_steps_are_reversed_once_each_last_first_after_one_forward_sweep(schedule: Schedule) -> None:
    actions = list(schedule)
    reversed_steps = [action.step for action in actions if isinstance(action, Turn | Reverse)]
    assert reversed_steps == list(reversed(range(schedule.steps)))
    assert sum(isinstance(action, EndForward) for action in actions) == 1
    end = actions.index(EndForward())
    assert not any(isinstance(action, Turn | Reverse) for action in actions[:end])
    assert not any(isinstance(action, Restore) for action in actions[:end])


@many
@given(strategies.schedules)
def test_every_snapshot_and_tape_is_let_go(schedule: Schedule) -> None:
    actions = list(schedule)
    assert sum(isinstance(a, Snapshot) for a in actions) == sum(isinstance(a, Free) for a in actions)
    assert sum(isinstance(a, Record) for a in actions) == sum(isinstance(a, Reverse) for a in actions)


@many
@given(strategies.schedules)
def test_schedules_are_values(schedule: Schedule) -> None:
    list(schedule), schedule.cost
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert list(again) == list(schedule)
    assert type(schedule).__name__ in repr(schedule)


@many
@given(strategies.schedules)
def test_a_chaotic_map_has_the_gradient_of_storing_everything(schedule: Schedule) -> None:
    def step(x: np.ndarray, i: int) -> np.ndarray:
        return 3.9 * x * (1 - x) + 1e-3 * np.sin(i * x)

    def back(x: np.ndarray, adjoint: np.ndarray, i: int) -> np.ndarray:
        return adjoint * (3.9 * (1 - 2 * x) + 1e-3 * i * np.cos(i * x))

    states = [np.array([0.3, 0.7, 0.123])]
    for i in range(schedule.steps):
        states.append(step(states[-1], i))
    expected = np.ones(3)
    for i in reversed(range(schedule.steps)):
        expected = back(states[i], expected, i)
    assert np.array_equal(_play(schedule, step, back, states[0]), expected)


def _play(schedule, step, back, state):
    slots, tapes, adjoint = {}, {}, np.ones(3)
    for action in schedule:
        match action:
            case Advance(start, stop):
                for i in range(start, stop):
                    state = step(state, i)
            case Snapshot(_, slot, tier):
                slots[tier, slot] = state
            case Restore(_, slot, tier):
                state = slots[tier, slot]
            case Free(_, slot, tier):
                del slots[tier, slot]
            case Record(i):
                tapes[i] = state
                state = step(state, i)
            case Turn(i):
                adjoint = back(state, adjoint, i)
            case Reverse(i):
                adjoint = back(tapes.pop(i), adjoint, i)
    return adjoint


@many
@given(st.integers(0, 200), st.integers(1, 15))
def test_more_slots_never_cost_more_and_more_steps_never_less(n: int, c: int) -> None:
    assert Revolve(n, c + 1).cost.forwards <= Revolve(n, c).cost.forwards
    assert Revolve(n + 1, c).cost.forwards >= Revolve(n, c).cost.forwards


@many
@given(st.integers(0, 60), st.integers(1, 10), strategies.ratios)
def test_more_memory_never_costs_more(n: int, memory: int, tape: float) -> None:
    assert Mixed(n, memory + 1, tape).cost.forwards <= Mixed(n, memory, tape).cost.forwards
    assert Mixed(n + 1, memory, tape).cost.forwards >= Mixed(n, memory, tape).cost.forwards


@many
@given(strategies.hierarchies(), st.data())
def test_slower_transfers_and_fewer_slots_never_take_less(schedule: Hierarchical, data: st.DataObject) -> None:
    tier = data.draw(st.integers(0, len(schedule.tiers) - 1))
    old = schedule.tiers[tier]
    slower = [Tier(t.slots, t.write + (i == tier), t.read + (i == tier)) for i, t in enumerate(schedule.tiers)]
    same = schedule.steps, schedule.forward, schedule.backward
    assert Hierarchical(same[0], slower, *same[1:]).cost.time >= schedule.cost.time - 1e-9
    if old.slots is not None:
        more = [Tier(t.slots + 1 if i == tier else t.slots, t.write, t.read) for i, t in enumerate(schedule.tiers)]
        assert Hierarchical(same[0], more, *same[1:]).cost.time <= schedule.cost.time + 1e-9


@many
@given(strategies.hierarchies())
def test_scaling_all_costs_scales_the_time(schedule: Hierarchical) -> None:
    tiers = [Tier(t.slots, 4 * t.write, 4 * t.read) for t in schedule.tiers]
    scaled = Hierarchical(schedule.steps, tiers, 4 * schedule.forward, 4 * schedule.backward)
    assert scaled.cost.time == pytest.approx(4 * schedule.cost.time)


@many
@given(st.integers(0, 60), st.integers(1, 6), st.integers(0, 6))
def test_free_tiers_and_tapes_that_never_fit_reduce_to_revolve(n: int, c: int, d: int) -> None:
    one = Revolve(n, c).cost
    assert Mixed(n, c, tape=c + 1).cost.forwards == one.forwards
    assert Hierarchical(n, [Tier(c)]).cost.forwards == one.forwards
    assert Hierarchical(n, [Tier(c), Tier(0, 5.0, 5.0)]).cost.forwards == one.forwards
    assert Hierarchical(n, [Tier(c), Tier(d)]).cost.time == Revolve(n, c + d).cost.time
