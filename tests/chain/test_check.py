"""The machine refuses whatever breaks a rule, and says which action and which rule."""

from __future__ import annotations

import pytest

from pebbling.chain import (
    Advance,
    EndForward,
    Free,
    Model,
    Record,
    Restore,
    Reverse,
    Revolve,
    Room,
    Snapshot,
    Turn,
    check,
)
from pebbling.errors import ScheduleError

TWO = Model(2, (Room(1),), tape=1)
GOOD = [Snapshot(0, 0, 0), Advance(0, 1), EndForward(), Turn(1), Restore(0, 0, 0), Free(0, 0, 0), Turn(0)]


def test_a_bare_list_of_actions_is_checked_too():
    assert check(GOOD).advances == 1
    assert check(GOOD, TWO) == Revolve(2, 1).cost


BAD = {
    "an advance from elsewhere": ([Advance(1, 2)], 0, "working state is that of step 0"),
    "an advance backwards": ([Advance(0, 0)], 0, "goes forward"),
    "an advance past the end": ([Advance(0, 3)], 0, "at most to step 2"),
    "a store of another state": ([Snapshot(1, 0, 0)], 0, "working state is that of step 0"),
    "a store into a full slot": ([Snapshot(0, 0, 0), Snapshot(0, 0, 0)], 1, "slot 0 of tier 0 holds step 0"),
    "one slot too many": ([Snapshot(0, 0, 0), Snapshot(0, 1, 0)], 1, "would hold 2 of at most 1"),
    "a tape too many": ([Snapshot(0, 0, 0), Record(0)], 1, "would hold 2 of at most 1"),
    "a restore from an empty slot": ([Restore(0, 0, 0)], 0, "slot 0 of tier 0 is empty"),
    "a restore of another step": ([Snapshot(0, 0, 0), Restore(1, 0, 0)], 1, "holds step 0"),
    "a free of an empty slot": ([Free(0, 0, 0)], 0, "is empty"),
    "a turn before the end of the sweep": ([Advance(0, 1), Turn(1)], 1, "has not ended"),
    "a turn of an earlier step": ([*GOOD[:3], Restore(0, 0, 0), Turn(0)], 4, "next step to reverse is 1"),
    "a turn from nowhere": ([*GOOD[:4], Turn(0)], 4, "working state is unknown"),
    "a reversal without a tape": ([*GOOD[:3], Reverse(1)], 3, "no tape of that step"),
    "a tape twice": ([Record(0), Record(0)], 1, "working state is that of step 1"),
    "the sweep ended early": ([EndForward()], 0, "come to step 0 of 2"),
    "the sweep ended twice": ([*GOOD[:3], EndForward()], 3, "has ended before"),
    "a step left": (GOOD[:4], None, "steps 0 … 0 are not reversed"),
    "a slot left": ([*GOOD[:5], GOOD[6]], None, r"slots \[\(0, 0\)\]"),
    "no end of the sweep": ([], None, "never ended"),
    "something else": (["Turn"], 0, "not an action"),
}


@pytest.mark.parametrize("name", BAD)
def test_rules(name):
    actions, index, rule = BAD[name]
    with pytest.raises(ScheduleError, match=rule) as error:
        check(actions, TWO)
    assert error.value.index == index
    if index is not None:
        assert f"action {index}, {actions[index]!r}" in str(error.value)


def test_a_restore_of_a_reversed_step_is_refused():
    model = Model(2, (Room(2),))
    actions = [Advance(0, 1), Snapshot(1, 0, 0), EndForward(), Turn(1), Restore(1, 0, 0)]
    with pytest.raises(ScheduleError, match="steps from 1 on are reversed already"):
        check(actions, model)


def test_actions_of_different_kinds_are_different():
    assert Snapshot(1, 0, 0) != Restore(1, 0, 0)
    assert Turn(1) != Record(1) != Reverse(1)
    assert len({Turn(1), Record(1), Reverse(1), Turn(1)}) == 3
    assert Advance(0, 2) == Advance(0, 2)
    assert Advance(0, 2) != (0, 2)
