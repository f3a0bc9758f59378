"""Which schedule a chain follows: given, by slots, by bytes, or by default; first while it is recorded, then again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..budget import Budget, in_store, refuse_other, slots_of
from ..chain import Online, Revolve, Schedule
from ..store import Store
from .recorder import OnlineRecorder, PlannedRecorder, Recorder
from .snapshots import TapeSnapshots

if TYPE_CHECKING:
    from .measured_budget import TapeBytes, ThinnedRecorder
    from .scope import Scope


@dataclass
class LoopPlanner:
    """What one loop was told, or the tape for all of them."""

    budget: Budget
    store: Store | None
    name: str
    measured: TapeBytes | None = None
    thinned: ThinnedRecorder | None = None

    def recorder(self, shelf: TapeSnapshots, length: int | None, scope: Callable[[], Scope]) -> Recorder:
        """What keeps snapshots while the loop goes on; ``scope`` gives the recording."""
        schedule = self.budget.schedule
        if isinstance(schedule, Schedule):
            refuse_other(schedule, length, self.name)
            return PlannedRecorder(shelf, schedule, self.slow)
        if self.budget.memory is not None:
            from .measured_budget import MeasuringRecorder

            return MeasuringRecorder(self, shelf, length, scope)
        if isinstance(schedule, Online) or length is None:
            return OnlineRecorder(shelf, schedule or Online(self._slots(None)), self.slow == 0)
        return PlannedRecorder(shelf, Revolve(length, self._slots(length)), self.slow)

    def outside(self, shelf: TapeSnapshots) -> OnlineRecorder:
        """What keeps snapshots outside of loops."""
        if self.budget.memory is None:
            return OnlineRecorder(shelf, Online(self._slots(None)), self.slow == 0)
        from .measured_budget import ThinnedRecorder

        self.thinned = ThinnedRecorder(self, shelf)
        return self.thinned

    @property
    def slow(self) -> int | None:
        """The tier that is in the store: the second, or the only one unless a budget in bytes chose it."""
        schedule, in_bytes = self.budget.schedule, self.budget.memory is not None
        stored = in_store(schedule or Online(1), self.store, in_bytes, "a tape")
        if in_bytes and self.store is not None:
            return 1
        return stored.index(True) if True in stored else None

    def again(self, steps: int, try_turn: Callable[[], int] | None) -> Schedule:
        """The schedule of a way back that begins with a sweep of its own.

        With tangents, ``try_turn`` tells the bytes that reversing a step takes.
        """
        schedule = self.budget.schedule
        if isinstance(schedule, Schedule) and schedule.steps == steps:
            return schedule
        if self.measured is not None:
            measured = self.measured if try_turn is None else self.measured.with_tangents(try_turn())
            return measured.schedule(steps)
        if self.thinned is not None:
            return Revolve(steps, max(1, min(self.thinned.slots(steps, try_turn is not None), steps)))
        return Revolve(steps, min(self._slots(steps), max(steps, 1)))

    def _slots(self, length: int | None) -> int:
        schedule = self.budget.schedule
        if isinstance(schedule, Online):
            return schedule.slots
        if isinstance(schedule, Schedule):
            return max(1, int(schedule.cost.peak))
        return slots_of(self.budget, length)
