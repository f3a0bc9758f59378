"""One loop under autograd: the sweep that lays snapshots, and the way back over them.

The sweep runs without a tape, except for the steps that the schedule reverses first: they are taped at
once, and the tape is held for the way back, as autograd holds any. The way back follows the rest of the
schedule; each block of steps that it tapes starts from a snapshot and is reversed with autograd's engine.

Snapshots are used up on the way; a second way back begins with a new sweep.

    loop.sweep()            Advance → steps without a tape; Snapshot → a tier keeps the state; Record → a tape is kept
    loop.let_go()           the outputs are the user's now, and node.py has put them into autograd's graph
    loop.back(seeds, …)     the rest of the actions (way_back.py): Restore, Advance, Turn → tape a block and pull it

Positions of the schedule are blocks of steps where steps are small: ``course.bound`` says which step one stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from ...chain import Action, Advance, EndForward, Free, Online, Record, Schedule, Snapshot
from ...errors import CorruptSnapshot, ReplayError
from ...loops.play import sweep_unknown
from ...loops.program import Leaves, Program
from ...store import Host, Store
from ..tensors import differentiable, requires_grad, tensors_among
from .ambient import Ambient, without_fast_paths
from .blocked import Blocked
from .buffers import Buffers, Values
from .offload import Moved, TapeOffload
from .snapshots import KeptState, TensorSlots, refuse_written
from .tapes import Sums, TapedBlock, Tapes, Unknown
from .tiers import tiers_of
from .verify import ReplaySums
from .way_back import WayBack


class CheckpointedLoop:
    """What a loop leaves behind for its derivative."""

    def __init__(
        self,
        program: Program,
        course: Blocked,
        state: Leaves,
        taper: Tapes,
        live: Sequence[bool],
        ambient: Ambient,
        buffers: Buffers,
        watched: Sequence[torch.Tensor],
        graded: bool,
        verify: str | bool,
        store: Store | None = None,
        in_bytes: bool = False,
    ) -> None:
        """``live`` marks the leaves of the state that are differentiated, ``watched`` are not to be written into.

        ``graded`` says that steps without a tape must run as if there were one, ``in_bytes`` that a budget in
        bytes chose the course.
        """
        self.program, self.course, self.taper, self.live = program, course, taper, list(live)
        self.ambient, self.buffers, self.graded, self.verify = ambient, buffers, graded, verify
        self.first = list(state)
        self.shelf = TensorSlots(program.where(), taper.written)
        self.tiers = tiers_of(course, store, in_bytes, self.shelf)
        self.offload: TapeOffload | None = None
        if course.offload:
            assert isinstance(store, Host)
            constants = tensors_among((*taper.given, *state))
            self.offload = TapeOffload(store, [*constants, *taper.constants])
            taper.lets_go = True
        self._watched = [tensor for tensor in watched if not tensor.is_inference()]
        self._begin()

    def _begin(self) -> None:
        self.state: Leaves = self.shelf.private(self.first)
        self.at, self.steps, self.spent = 0, 0, False
        self.start = self.ambient.draws(), self.buffers.read()
        self.tapes: list[TapedBlock] = []
        self.actions: Iterator[Action] = iter(())
        """What is left of the schedule after the sweep."""
        self.flag: Any = None
        self.outs: Sequence[Any] = ()
        self.emitted: list[Sequence[Any]] = []
        self.width = len(self.first)
        self.counts: tuple[int, list[int]] = (0, [])
        self.replays = ReplaySums(self.verify)
        self._versions = [tensor._version for tensor in self._watched]

    def sweep(self) -> None:
        """Run the loop to its end and lay the snapshots of its schedule; ``state`` is then the final one."""
        with without_fast_paths():
            if isinstance(self.course.schedule, Online):
                self.actions = sweep_unknown(self, self.course.schedule)
                self.steps = self.at
            else:
                self._sweep_planned(self.course.schedule)
        self._unwritten()
        self._check_buffers()

    def _check_buffers(self) -> None:
        self.buffers.check(self.program.where())

    def _sweep_planned(self, schedule: Schedule) -> None:
        self.steps = self.course.bound(schedule.steps)
        self.actions = iter(schedule)
        bound = self.course.bound
        pending: int | None = None
        action: Any
        for action in self.actions:
            kind = type(action)
            if kind is Record:
                if self.offload is not None:
                    self.record(self.at, bound(action[0] + 1))
                else:
                    pending = self.at if pending is None else pending
                self.at = bound(action[0] + 1)
                continue
            if kind is EndForward:
                break
            if pending is not None:
                self.record(pending, self.at)
                pending = None
            if kind is Advance:
                if self.at == 0:
                    self.forward(1)
                    self._unwritten()
                self.forward(bound(action[1]))
            elif kind is Snapshot:
                self.lay(action[1], action[2])
            elif kind is Free:
                self.drop(action[1], action[2])
        if self.steps and (pending is not None or self.at < self.steps):
            self.record(self.at if pending is None else pending, self.steps)
            self.at = self.steps

    def lay(self, slot: int, tier: int) -> None:
        """Keep the state that the sweep is at."""
        draws, buffers = self.start if self.at == 0 else (self.ambient.draws(), self.held_buffers())
        self.tiers[tier].put(slot, self.at, self.state, draws, buffers)

    def drop(self, slot: int, tier: int) -> None:
        """Let go of a snapshot."""
        self.tiers[tier].free(slot)

    def restore(self, slot: int, tier: int) -> KeptState:
        """A snapshot to go on from; one that a store has damaged is computed again, and put back."""
        try:
            return self.tiers[tier].get(slot)
        except CorruptSnapshot:
            lost = self.tiers[tier].held()[slot]
        kept = self._latest(lost.step)
        self.ambient.set(kept.draws)
        self.buffers.write(kept.buffers)
        state = self.advance(kept.leaves, kept.step, lost.step)
        self.tiers[tier].put(slot, lost.step, state, lost.draws, lost.buffers)
        return lost._replace(leaves=self.shelf.private(state))

    def _latest(self, step: int) -> KeptState:
        """The latest good snapshot before a step, or the state that the loop began with."""
        held = [(kept.step, slot, tier) for tier in self.tiers for slot, kept in tier.held().items()]
        for _, slot, tier in sorted([one for one in held if one[0] < step], key=lambda one: one[:2], reverse=True):
            with suppress(CorruptSnapshot):
                return tier.get(slot)
        return KeptState(0, self.shelf.private(self.first), [], *self.start)

    def held_buffers(self) -> Values:
        """The buffers that a snapshot of now takes along."""
        return self.buffers.read()

    def forward(self, stop: int) -> None:
        """Take steps of the sweep."""
        if self.program.rich:
            for step in range(self.at, stop):
                self.flag, self.state, self.outs, part = self._full(self.state, step)
                self.emitted.append(part)
        else:
            self.state = self.advance(self.state, self.at, stop)
        self.at = stop

    def _full(self, state: Leaves, step: int) -> tuple[Any, Leaves, Sequence[Any], Sequence[Any]]:
        if self.graded:
            block = self.taper.tape(list(state), step, step + 1, self.followed(state, step))
            return self.given_out(block)
        with self.taper.untaped():
            flag, new, outs, part = self.program.full(state, self.taper.given, step)
        return flag, self.taper.cut(new), self.taper.cut(outs), self.taper.cut(part)

    def given_out(self, block: TapedBlock) -> tuple[Any, Leaves, Sequence[Any], Sequence[Any]]:
        values = self.taper.cut(block.values)
        block.values = []
        width = len(values) - block.outs - sum(block.emitted)
        cut = width + block.outs
        return block.flag, values[:width], values[width:cut], values[cut:]

    def advance(self, state: Leaves, start: int, stop: int) -> Leaves:
        """Steps without a tape; ``state`` comes back empty."""
        if self.graded:
            for step in range(start, stop):
                state = self.given_out(self.taper.tape(state, step, step + 1, self.followed(state, step)))[1]
            return state
        with self.taper.untaped():
            return self.taper.cut(self.program.advance(state, self.taper.given, start, stop))

    def record(self, start: int, stop: int) -> None:
        """Take steps of the sweep with a tape that is kept until they are reversed."""
        if self.offload is None:
            block = self.tape(self.state, start, stop)
        else:
            moved: list[Moved] = []
            with self.offload.taping(moved):
                block = self.tape(self.state, start, stop)
            block.moved = moved
        self.flag, self.state, self.outs, emitted = self.given_out(block)
        at = 0
        for count in block.emitted:
            self.emitted.append(emitted[at : at + count])
            at += count
        self.tapes.append(block)

    def tape(self, state: Leaves, start: int, stop: int) -> TapedBlock:
        """A block of steps with a tape; leaves that a first step is given stay as they are."""
        live, leaf = self.followed(state, start), []
        if start == 0:
            live = [one and requires_grad(old) for one, old in zip(live, self.first)]
            leaf = [isinstance(old, torch.Tensor) and old.is_leaf for old in self.first]
        elif self.replays.wants(start):
            self.replays.see(start, state, self.program)
        try:
            block = self.taper.tape(state, start, stop, live, leaf)
        except Unknown as unknown:
            raise unknown.refuse() from None
        except RuntimeError as error:
            if "in-place operation" in str(error):
                refuse_written("the state", self.program.where(), error)
            raise
        self._consistent(block)
        return block

    def followed(self, state: Leaves, step: int) -> list[bool]:
        """Which leaves of the state before a step are differentiated."""
        return self.live

    def carrying(self, state: Leaves, others: Leaves) -> list[bool]:
        """Which outputs of the loop are differentiated: leaves of the final state, and the ``others``."""
        live = self.followed(state, self.steps)
        return [*[one and differentiable(leaf) for one, leaf in zip(live, state)], *map(differentiable, others)]

    def arrived(self, block: TapedBlock, emitted: list[list[Any]]) -> list[tuple[int, Any]]:
        """Cotangents of emitted values that a block's own state holds, taken from ``emitted``, by place."""
        return []

    def _consistent(self, block: TapedBlock) -> None:
        width = len(block.values) - block.outs - sum(block.emitted)
        for place, (end, one) in enumerate(zip(block.ends[:width], self.followed(block.values[:width], block.stop))):
            if end is not None and not one:
                name = self.program.names(width)[place]
                raise ReplayError(
                    f"{name} of {self.program.where()} depends on differentiated values in steps {block.start} to "
                    f"{block.stop - 1}, and did not in the first ones: its earlier gradients would be lost. Let it "
                    "require gradients from the start (requires_grad_())"
                )
        self._compared(block, width)

    def _compared(self, block: TapedBlock, width: int) -> None:
        """Hold the state after a block against the first run, where that is asked for."""
        if block.stop < self.steps and self.replays.wants(block.stop):
            self.replays.see(block.stop, block.values[:width], self.program)

    def let_go(self) -> None:
        """Give up the outputs: the way back only needs to know how many there are."""
        self.width = len(self.state)
        self.counts = len(self.outs), [len(part) for part in self.emitted]
        self.state, self.outs, self.emitted = [], (), []

    def back(self, seeds: list[torch.Tensor | None], wanted: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        """Cotangents of the initial state and of the constants, from those of all outputs, which are used up."""
        final = self.buffers.read()
        fresh = self.spent
        if fresh:
            self._again()
        self.spent = True
        self._unwritten()
        sums = Sums([None] * len(self.taper.constants))
        try:
            with self.ambient.again():
                state = WayBack(self, seeds, sums, wanted).go()
                self.taper.finish(sums)
        finally:
            for tier in self.tiers:
                tier.clear()
            self.tapes.clear()
            if self.offload is not None:
                self.offload.clear()
            self.buffers.write(final)
        return state, sums.constants

    def _again(self) -> None:
        """Lay the snapshots of a way back that has been taken once more."""
        start = self.start
        with self.ambient.again():
            self.ambient.set(start[0])
            self.buffers.write(start[1])
            self._begin()
            self.start = start
            self.sweep()
            self.let_go()

    def _unwritten(self) -> None:
        for tensor, count in zip(self._watched, self._versions):
            if tensor._version != count:
                refuse_written(f"a tensor of shape {tuple(tensor.shape)}", self.program.where())
