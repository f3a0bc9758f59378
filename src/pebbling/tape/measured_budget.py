"""Budgets in bytes, by measuring: the first two steps of a loop, and a trial reversal of the first.

A run holds, besides the snapshots of its schedule: the state at hand, the one before the last step, the
user's own handle, the gradients of leaves and what was recorded of each step; and then whatever runs at
the moment, a step or the reversal of one. Steps that need more than the first ones can exceed the budget
by as much.

Outside of loops no two ops are alike. There a tape keeps snapshots as for a loop of unknown length, and
thins them out when they take more room than is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..budget import UNKNOWN_LENGTH_SLOTS, quickest, too_few
from ..chain import Online, Revolve, Schedule, StoreAll
from ..drive.budget import refuse_untraced
from ..drive.slow_tier import time_transfer
from ..drive.tracing import TracedMemory
from ..errors import BudgetError, PebblingError
from ..tree import flatten, nbytes
from ..units import parse_budget
from .convert import differentiable
from .derivative_order import FirstOrder
from .handle import ValueNode
from .held import HeldStates
from .liveness import NOTHING, ChainLiveness
from .recorder import OnlineRecorder, PlannedRecorder, Recorder
from .replay import ChainReplay, ReplayRun
from .snapshots import TapeSnapshots

if TYPE_CHECKING:
    from .planner import LoopPlanner
    from .scope import Scope

BOOKKEEPING = 64 * 1024
"""The run's own objects: the stream of actions, tables."""
_SCRATCH = 128 * 1024  # what the mark of a large array takes at the most
_OP = 1000  # what is recorded of an op outside of loops
_SNAPSHOT, _LEAF = 500, 250  # what a snapshot takes besides its values, and each of these
_JITTER = 16 * 1024  # what two trials of the same step may differ by: Python's own objects and caches
_MOST = 256  # snapshots of a loop of unknown length, beyond which choosing them takes longer than it saves
_AHEAD = 64  # steps of a loop of unknown length for which there is room at any time
_IN_FLIGHT = 3  # snapshots in memory on their way to or from a store: two out, one in
_BESIDES = 3  # states held besides those of the schedule: at hand, the user's own, and one to spare


@dataclass(frozen=True)
class TapeBytes:
    """What the first steps of a loop showed, in bytes, and the limit."""

    limit: int
    state: int
    forward: int
    turn: int
    gradients: int
    tape: int
    step: int
    """What is recorded of a step."""
    name: str

    def with_tangents(self, turn: int) -> TapeBytes:
        """The same where every value has a tangent, and reversing a step takes ``turn``."""
        return TapeBytes(
            self.limit, 2 * self.state, 2 * self.forward, turn, 2 * self.gradients, 2 * self.tape, self.step,
            f"a Hessian-vector product of {self.name}",
        )  # fmt: skip

    def besides(self, steps: int) -> int:
        """What a run takes besides the snapshots of its schedule."""
        working = max(self.forward, self.gradients + self.turn)
        return BOOKKEEPING + min(self.state, _SCRATCH) + self.step * steps + _BESIDES * self.state + working

    def slots(self, steps: int) -> int:
        """The most snapshots that fit, that of the beginning included, which takes nothing; or a ``BudgetError``."""
        besides = self.besides(steps)
        if besides > self.limit:
            parts = {"a state": self.state, "the reversal of a step": self.turn}
            raise too_few(self.limit, self.name, besides + _JITTER, **parts)
        return 1 + (self.limit - besides) // self.state

    def schedule(self, steps: int) -> Schedule:
        """The schedule of a loop of that length."""
        slots = self.slots(steps)
        if steps > 1 and steps * self.tape <= (slots - 1) * self.state:
            return StoreAll(steps)
        return Revolve(steps, min(slots, max(steps, 1)))


class MeasuringRecorder:
    """Measures the first two steps, keeping all of them, and then follows the plan that fits."""

    def __init__(
        self, planner: LoopPlanner, shelf: TapeSnapshots, length: int | None, scope: Callable[[], Scope]
    ) -> None:
        assert planner.budget.memory is not None
        self._planner, self._shelf, self._length, self._scope = planner, shelf, length, scope
        self._limit = parse_budget(planner.budget.memory)
        self._first: list[Any] = []
        self._seconds = 0.0
        self._recorder: Recorder | None = None
        self._online: OnlineRecorder | None = None
        self._traced: TracedMemory | None = TracedMemory()
        self._traced.__enter__()

    def taping(self, step: int) -> bool:
        return self._recorder is None or self._recorder.taping(step)

    def reach(self, step: int, cut: Sequence[ValueNode], values: list[Any]) -> None:
        if self._recorder is None:
            if step == 0:
                self._first, self._seconds = values, -perf_counter()
                return
            self._seconds += perf_counter()
            self._settle(cut, values)
        assert self._recorder is not None
        self._recorder.reach(step, cut, values)
        if self._online is not None:
            self._thin(self._online, step)

    def finish(self, steps: int) -> HeldStates:
        self._stop()
        return HeldStates(steps, 1, working=(0, [])) if self._recorder is None else self._recorder.finish(steps)

    def drop(self) -> None:
        self._stop()
        if self._recorder is not None:
            self._recorder.drop()

    def _stop(self) -> int:
        traced, self._traced = self._traced, None
        if traced is None:
            return 0
        traced.__exit__(None, None, None)
        return traced.peak

    def _settle(self, cut: Sequence[ValueNode], values: list[Any]) -> None:
        forward, planner, length = self._stop(), self._planner, self._length
        state = [node.value for node in cut]
        refuse_untraced([*state, *values])
        turn, gradients = self._try_turn(state, self._first)
        size = nbytes(state) + _SNAPSHOT + _LEAF * max(1, len(flatten(state)[0]))
        tape = nbytes([*state, *values]) + _SNAPSHOT + _LEAF * (len(state) + len(values))
        scope = self._scope()
        step, name = scope.recorded_bytes(), scope.chain.name
        measured = planner.measured = TapeBytes(self._limit, size, forward, turn, gradients, tape, step, name)
        if length is None:
            self._recorder = self._online = OnlineRecorder(
                self._shelf, Online(min(measured.slots(_AHEAD), _MOST)), slow=False
            )
        elif planner.store is not None and measured.slots(length) < length:
            self._recorder = PlannedRecorder(self._shelf, self._with_store(measured, state, length), planner.slow)
        else:
            self._recorder = PlannedRecorder(self._shelf, measured.schedule(length), planner.slow)
        self._recorder.reach(0, [], self._first)
        self._first = []

    def _with_store(self, measured: TapeBytes, state: list[Any], length: int) -> Schedule:
        store = self._planner.store
        assert store is not None
        transfer = time_transfer(store, state)
        size, slots = measured.state, measured.slots(length) - _IN_FLIGHT - transfer.peak // measured.state
        if slots < 1:
            return measured.schedule(length)
        return quickest(length, size, slots * size, length, transfer, forward=self._seconds).schedule

    def _try_turn(self, state: list[Any], values: list[Any]) -> tuple[int, int]:
        """What reversing the first step takes, and the gradients that come of it."""
        scope = self._scope()
        chain = scope.chain
        liveness = ChainLiveness(tangents=False)
        relevant = frozenset(place for place, value in enumerate(state) if differentiable(value))
        chain_plan = liveness.plan_of(chain, relevant, NOTHING)
        run = ReplayRun(
            FirstOrder(), self._shelf, lambda inner: inner.chain.plan.again(len(inner.chain), None), verify=False
        )
        replay = ChainReplay(run, chain, chain_plan, [node.value for node in scope.outer])
        try:
            with TracedMemory() as traced, np.errstate(all="ignore"):
                replay.back(
                    HeldStates(1, 1, working=(0, [])), list(map(run.order.doubled, state)), [None] * len(scope.outer)
                )
                found = [*replay.outer_cotangents, *run.cotangents.values()]
                gradients = nbytes([part for part in found if part is not None])
                del found
        except BudgetError:
            raise
        except PebblingError:
            # An op without a vjp, which may not be on the way to the result at all.
            return 8 * nbytes([*state, *values]), nbytes(state)
        return traced.peak, gradients

    def _thin(self, online: OnlineRecorder, step: int) -> None:
        """What is recorded grows with the loop, and snapshots give way."""
        measured = self._planner.measured
        assert measured is not None
        if step % _AHEAD == 0:
            slots = measured.slots(step + _AHEAD)
            if slots < len(online.held.slots):
                online.held.steps = step
                online.held.thin(slots - 1)


class ThinnedRecorder(OnlineRecorder):
    """Snapshots outside of loops, as many as there is room for."""

    def __init__(self, planner: LoopPlanner, shelf: TapeSnapshots) -> None:
        super().__init__(shelf, Online(UNKNOWN_LENGTH_SLOTS), slow=planner.slow == 0)
        assert planner.budget.memory is not None
        self._limit = parse_budget(planner.budget.memory)
        self.left: int | None = None
        """What the loops of the tape leave, once there is one."""
        self.largest = 0
        """The largest cut."""

    def reach(self, step: int, cut: Sequence[ValueNode], values: list[Any]) -> None:
        super().reach(step, cut, values)
        size = nbytes([node.value for node in cut])
        if size > self.largest:
            refuse_untraced([node.value for node in cut])
            self.largest = size
            if self.left is None and self.slots(step) < 1:
                minimum = self._limit + self.largest * (1 - self.slots(step))
                raise too_few(self._limit, "what is outside of loops", minimum, the_values_of_an_op=size)
        slots = max(self.slots(step), 0)
        if size and len(self.held.slots) > slots:
            self.held.steps = step
            self.held.thin(slots)
            self.held.capacity = max(1, slots)

    def slots(self, steps: int, tangents: bool = False) -> int:
        """How many snapshots there is room for."""
        times, recorded = 2 if tangents else 1, _OP * steps
        if not self.largest:
            return UNKNOWN_LENGTH_SLOTS
        if self.left is not None:
            return self.left // self.largest
        free = self._limit - BOOKKEEPING - min(self.largest, _SCRATCH) - recorded - times * 8 * self.largest
        return free // (times * self.largest)
