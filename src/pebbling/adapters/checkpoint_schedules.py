"""A plan of pebbling as a ``CheckpointSchedule``: for pyadjoint, Firedrake, dolfinx-adjoint and tlm_adjoint.

The two vocabularies say the same in other words. A schedule there stores a state in the ``Forward`` that starts from
it, tapes a step by a ``Forward`` that writes what its adjoint needs, and copies to its working storage what it
goes on from:

    pebbling                                       checkpoint_schedules
    Snapshot(3, slot, tier), Advance(3, 5)            Forward(3, 5, True, False, RAM or DISK)
    Advance(5, 7)                                  Forward(5, 7, False, False, WORK)
    Turn(7)                                        Forward(7, 8, False, True, WORK), Reverse(8, 7, True)
    Record(2)                                      Forward(2, 3, False, True, RAM)
    Reverse(2), from a kept tape                   Move(2, RAM, WORK), Reverse(3, 2, True)
    Restore(3, slot, tier)                         Copy(3, RAM or DISK, WORK)
    Restore(3, slot, tier), Free(3, slot, tier)    Move(3, RAM or DISK, WORK)
    Free(3, slot, tier)                            Move(3, RAM or DISK, NONE)

``EndForward`` comes there once the last step has run, so the forward half of the last turn goes before it.

Loops of unknown length: ``Online`` gives up a snapshot when a better one comes, by ``Move(step, RAM, NONE)`` in the
first sweep. Tools that store with a snapshot only what the steps up to the next one need can't follow such a plan,
nor can those that take no ``Move`` in the first sweep: pyadjoint says "Unable to process Move". As long as
nothing is given up, which is up to (slots + 1)(slots + 2)/2 - 1 steps, every tool can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..chain import Action, Advance, Free, Online, Plan, Record, Restore, Reverse, Schedule, Snapshot, Turn
from ..chain import EndForward as SweepOver

try:
    from checkpoint_schedules import (
        CheckpointSchedule,
        Copy,
        EndForward,
        EndReverse,
        Forward,
        Move,
        StorageType,
    )
    from checkpoint_schedules import Reverse as Back
except ImportError as error:
    raise ImportError(
        "pebbling.adapters.checkpoint_schedules needs the package: pip install checkpoint-schedules"
    ) from error

__all__ = ["TranslatedSchedule", "schedule"]


def schedule(
    plan: Schedule | Online | Plan, storages: Sequence[StorageType] = (StorageType.RAM, StorageType.DISK)
) -> TranslatedSchedule:
    """The same plan for ``tape.enable_checkpointing(…)`` and whatever else runs such schedules.

    ``storages`` says where each tier of the plan is kept, fastest first.

    >>> import pebbling as pb
    >>> for action in schedule(pb.Revolve(3, 2)):
    ...     print(action)
    Forward(0, 1, True, False, StorageType.RAM)
    Forward(1, 2, True, False, StorageType.RAM)
    Forward(2, 3, False, True, StorageType.WORK)
    EndForward()
    Reverse(3, 2, True)
    Move(1, StorageType.RAM, StorageType.WORK)
    Forward(1, 2, False, True, StorageType.WORK)
    Reverse(2, 1, True)
    Move(0, StorageType.RAM, StorageType.WORK)
    Forward(0, 1, False, True, StorageType.WORK)
    Reverse(1, 0, True)
    EndReverse()
    """
    return TranslatedSchedule(plan.schedule if isinstance(plan, Plan) else plan, tuple(storages))


class TranslatedSchedule(CheckpointSchedule):  # type: ignore[misc]
    """A ``CheckpointSchedule`` that follows a plan of pebbling; good for one adjoint calculation."""

    def __init__(self, plan: Schedule | Online, storages: tuple[StorageType, ...]) -> None:
        if not isinstance(plan, Schedule | Online):
            raise TypeError(f"schedule() takes a plan such as pb.Revolve(100, 10), not {plan!r}")
        if isinstance(plan, Schedule) and plan.steps < 1:
            raise ValueError(f"{plan} has no step; a CheckpointSchedule has at least one")
        self._used = _tiers(plan)
        if len(self._used) > len(storages):
            raise ValueError(
                f"{plan} keeps snapshots in {len(self._used)} tiers, and {len(storages)} storages were given: "
                f"checkpoint_schedules knows RAM and DISK"
            )
        super().__init__(plan.steps if isinstance(plan, Schedule) else None)
        self.plan, self._storages, self._exhausted = plan, storages, False

    def _iterator(self) -> Iterator[Any]:
        if isinstance(self.plan, Online):
            yield from self._sweep_unknown(self.plan)
            ended = self.plan.ended(self._max_n)
            way_back: Iterable[Action] = ended.since(ended.end_forward + 1)
        else:
            way_back = self.plan
        yield from self._translated(way_back)
        self._exhausted = True
        yield EndReverse()

    @property
    def is_exhausted(self) -> bool:
        """Whether the adjoint calculation is over: the snapshots are used up by it."""
        return self._exhausted

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Whether anything is ever kept there."""
        if storage_type == StorageType.WORK:
            return True
        return any(used and self._storages[tier] == storage_type for tier, used in enumerate(self._used))

    def _sweep_unknown(self, plan: Online) -> Iterator[Any]:
        """The first sweep of a loop that ends when ``finalize`` is called."""
        ram = self._storages[0]
        placement = plan.placement()
        kept = next(placement)
        while self._max_n is None:
            if kept.evicted is not None:
                yield Move(kept.evicted, ram, StorageType.NONE)
            following = next(placement, None)
            self._n = sys.maxsize if following is None else following.step
            yield Forward(kept.step, self._n, True, False, ram)
            if following is not None:
                kept = following
        yield EndForward()

    def _translated(self, actions: Iterable[Action]) -> Iterator[Any]:
        """The other vocabulary's words; ``n`` and ``r`` are set before each, as its own schedules do."""
        stream = iter(actions)
        action = next(stream, None)
        while action is not None:
            following = next(stream, None)
            match action:
                case Snapshot(step, _, tier):
                    # A plan stores a state only where it goes on from it.
                    assert isinstance(following, Advance), following
                    self._n = following.stop
                    yield Forward(step, following.stop, True, False, self._storages[tier])
                    following = next(stream, None)
                case Advance(start, stop):
                    self._n = stop
                    yield Forward(start, stop, False, False, StorageType.WORK)
                case Restore(step, _, tier):
                    self._n = step
                    last = isinstance(following, Free) and following.step == step
                    yield (Move if last else Copy)(step, self._storages[tier], StorageType.WORK)
                    following = next(stream, None) if last else following
                case Free(step, _, tier):
                    yield Move(step, self._storages[tier], StorageType.NONE)
                case Record(step):
                    self._n = step + 1
                    yield Forward(step, step + 1, False, True, self._storages[0])
                case Reverse(step):
                    yield Move(step, self._storages[0], StorageType.WORK)
                    yield self._reversed(step)
                case SweepOver():
                    # The last step runs before the end of the sweep there, and after it here.
                    if isinstance(following, Turn):
                        yield self._taped(following.step)
                    yield EndForward()
                    if isinstance(following, Turn):
                        yield self._reversed(following.step)
                        following = next(stream, None)
                case Turn(step):
                    yield self._taped(step)
                    yield self._reversed(step)
            action = following

    def _taped(self, step: int) -> Forward:
        self._n = step + 1
        return Forward(step, step + 1, False, True, StorageType.WORK)

    def _reversed(self, step: int) -> Back:
        self._r += 1
        return Back(step + 1, step, True)


def _tiers(plan: Schedule | Online) -> list[bool]:
    """Of each tier, whether the plan ever keeps something there."""
    if isinstance(plan, Online):
        return [True]
    cost = plan.cost
    used = [peak > 0 for peak in cost.peaks]
    used[0] = used[0] or cost.tapes > 0
    return used
