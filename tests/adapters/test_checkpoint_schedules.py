"""Translated schedules, run on a machine that knows the words of checkpoint_schedules alone."""

import sys

import checkpoint_schedules as words
import pytest
from checkpoint_schedules import StorageType

import pebbling as pb
from pebbling.adapters.checkpoint_schedules import schedule
from pebbling.chain import Staged

RAM, DISK, WORK, NONE = StorageType.RAM, StorageType.DISK, StorageType.WORK, StorageType.NONE


class Simulated:
    """A forward model at step ``at``, an adjoint at step ``end``, and what is kept where."""

    def __init__(self, steps, limits):
        self.steps = self.end = steps
        self.at, self.taped, self.swept = 0, None, False
        self.kept = {RAM: {}, DISK: {}}
        self.limits, self.forwards = limits, 0

    def do(self, action):
        match action:
            case words.Forward():
                assert self.at == action.n0
                self.at = min(action.n1, self.steps)
                assert action.n0 < self.at <= self.end
                self.forwards += self.at - action.n0
                assert not (action.write_ics and action.write_adj_deps)
                if action.storage != WORK:
                    assert action.write_ics or action.write_adj_deps
                    assert action.n0 not in self.kept[action.storage]
                    self.kept[action.storage][action.n0] = "state" if action.write_ics else "tape"
                    assert len(self.kept[action.storage]) <= self.limits[action.storage]
                else:
                    assert not action.write_ics
                    self.taped = action.n0 if action.write_adj_deps else None
            case words.Reverse():
                assert self.swept
                assert action.n1 == self.end == action.n0 + 1
                assert self.taped == action.n0
                self.taped, self.end = None, action.n0
            case words.Copy() | words.Move() if action.to_storage == WORK:
                kind = self.kept[action.from_storage][action.n]
                assert action.n < self.end
                if kind == "state":
                    self.at = action.n
                else:
                    self.taped = action.n
                if isinstance(action, words.Move):
                    del self.kept[action.from_storage][action.n]
            case words.Move():
                assert action.to_storage == NONE
                del self.kept[action.from_storage][action.n]
            case words.EndForward():
                assert self.at == self.steps
                self.swept = True
            case words.EndReverse():
                assert self.end == 0
                assert self.kept == {RAM: {}, DISK: {}}
            case _:
                raise AssertionError(action)


def run(translated, steps, limits):
    machine = Simulated(steps, limits)
    for action in translated:
        machine.do(action)
        assert translated.r == steps - machine.end
        if machine.at == steps and not machine.swept and translated.max_n is None:
            translated.finalize(steps)
        assert isinstance(action, words.EndReverse) == translated.is_exhausted
    return machine


def limits(ram, disk=0):
    return {RAM: ram, DISK: disk}


def families(n, c):
    yield pb.Revolve(n, c), limits(c)
    yield pb.Mixed(n, c), limits(c)
    yield pb.Mixed(n, c + 3, tape=2), limits(c + 3)
    yield pb.Periodic(n, c), limits(n)
    yield pb.StoreAll(n), limits(n)
    yield pb.Online(c).ended(n), limits(c)
    yield pb.Uneven(([1, 5, 2] * n)[:n], slots=c), limits(c)
    yield pb.Hierarchical(n, [pb.Tier(c), pb.Tier(2, write=0.5, read=0.5)]), limits(c, 2)
    yield pb.Hierarchical(n, [pb.Tier(c), pb.Tier(None, write=5, read=2)]), limits(c, n)
    yield Staged(n, 3, memory=c + 2), limits(n, n)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 30, 100])
@pytest.mark.parametrize("slots", [1, 2, 5, 20])
def test_every_family_follows_their_rules(steps, slots):
    for plan, room in families(steps, slots):
        machine = run(schedule(plan), steps, room)
        assert machine.forwards == plan.cost.forwards, plan


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("steps", [1, 2, 3, 6, 7, 50])
def test_unknown_length(steps, slots):
    machine = run(schedule(pb.Online(slots)), steps, limits(slots))
    # A sweep that stops in the middle of an advance has run no step too many.
    assert machine.forwards == pb.Online(slots).ended(steps).cost.forwards


def test_finalize_in_the_middle_of_an_advance_only():
    translated = schedule(pb.Online(1))
    assert next(translated).n1 == sys.maxsize
    assert translated.max_n is None
    translated.finalize(5)
    assert (translated.max_n, translated.n) == (5, 5)
    with pytest.raises(RuntimeError):
        schedule(pb.Revolve(4, 2)).finalize(5)


def test_storage_that_is_used():
    used = schedule(pb.Hierarchical(50, [pb.Tier(2), pb.Tier(3, write=0.1, read=0.1)]))
    assert [used.uses_storage_type(kind) for kind in (RAM, DISK, WORK, NONE)] == [True, True, True, False]
    used = schedule(pb.Revolve(50, 3), [DISK])
    assert [used.uses_storage_type(kind) for kind in (RAM, DISK, WORK, NONE)] == [False, True, True, False]


def test_a_plan_of_bytes():
    found = pb.plan(50, "1MB", memory="10MB")
    assert schedule(found).plan == found.schedule


def test_refusals():
    with pytest.raises(ValueError, match="3 tiers"):
        schedule(pb.Hierarchical(50, [pb.Tier(1), pb.Tier(1, write=1, read=1), pb.Tier(2, write=2, read=2)]))
    with pytest.raises(TypeError, match=r"pb\.Revolve"):
        schedule("revolve")
    with pytest.raises(ValueError, match="no step"):
        schedule(pb.Revolve(0, 1))
