"""One loop under autograd whose state may change from step to step: what it holds, and what of it is differentiated.

The loops of a transformed function are such: a name is bound late, a list grows, a counter becomes a
tensor that depends on a parameter. So every step of the sweep runs with a tape of its own, dropped after
it: it shows which tensors are differentiated before the next one, and which the step has reached. The way
back then tapes exactly those.

A tensor that is collected and stays in the state is one value. What the code after the loop does with it reaches its
cotangent before any later step does, as on a tape of the whole loop.
"""

from __future__ import annotations

from typing import Any

import torch

from ...errors import PebblingError, ReplayError, SourceError
from ...loops.emitted_aliases import EmittedAliases
from ...loops.program import Leaves
from ..tensors import requires_grad
from .ambient import Draws
from .buffers import Values
from .checkpointed import CheckpointedLoop
from .snapshots import refuse_written
from .tapes import TapedBlock, Unknown


class VariedLoop(CheckpointedLoop):
    """A loop that knows of each state which of its leaves are differentiated."""

    def _begin(self) -> None:
        super()._begin()
        self.lasting = EmittedAliases()
        self.lives: dict[int, list[bool]] = {0: [requires_grad(leaf) for leaf in self.first]}
        """By step, of the states that a block can begin with or end in."""
        self.others: list[bool] = []
        self.collected: list[list[bool]] = []
        """Which of the last outputs, and of the emitted ones of each step, are differentiated."""

    def followed(self, state: Leaves, step: int) -> list[bool]:
        return self.lives[step]

    def carrying(self, state: Leaves, others: Leaves) -> list[bool]:
        return [*self.lives[self.steps], *self.others, *[one for part in self.collected for one in part]]

    def forward(self, stop: int) -> None:
        for step in range(self.at, stop):
            self._take(step, step + 1)
            if self.flag:
                break
        self.at = stop

    def record(self, start: int, stop: int) -> None:
        """Take steps of the sweep with a tape that is kept until they are reversed."""
        self.tapes.append(self._take(start, stop))

    def _take(self, start: int, stop: int) -> TapedBlock:
        before = list(self.state)
        block = self._taped(self.state, start, stop)
        for root in block.roots:
            if root is not None and (root if root.is_leaf else root._base).grad is not None:
                self._refuse_backward()
        ends = [end is not None for end in block.ends]
        width = len(ends) - block.outs - sum(block.emitted)
        cut = width + block.outs
        # A tensor that the steps have left alone is the one from before them.
        known = {id(root): old for root, old in zip(block.roots, before) if root is not None}
        values = self.taper.cut([known.get(id(value), value) for value in block.values])
        block.values = []
        self.flag, self.state, self.outs = block.flag, values[:width], values[width:cut]
        self.lives[stop], self.others = ends[:width], ends[width:cut]
        emitted = []
        for count in block.emitted:
            emitted.append(values[cut : cut + count])
            self.collected.append(ends[cut : cut + count])
            cut += count
        self.emitted += emitted
        self.lasting.see(start, stop, self.state, emitted)
        return block

    def advance(self, state: Leaves, start: int, stop: int) -> Leaves:
        """Steps of the way back that nobody reverses: they see what they saw the first time, a tape included."""
        looks, self.taper.looks = self.taper.looks, False
        for step in range(start, stop):
            state = self.given_out(self._taped(state, step, step + 1))[1]
        self.taper.looks = looks
        return state

    def sweep(self) -> None:
        """Run the loop to its end and lay the snapshots of its schedule; ``state`` is then the final one."""
        before = self._grads()
        draws, values = self.start
        try:
            super().sweep()
        except PebblingError:
            # The loop may be about to begin anew, knowing more.
            self.buffers.widen()
            self._undo(draws, values)
            raise
        if self._late:
            self._undo(draws, values)
            for tier in self.tiers:
                tier.clear()
            self._begin()
            super().sweep()
        if any(one != two for one, two in zip(before, self._grads())):
            self._refuse_backward()

    def _check_buffers(self) -> None:
        self._late = self.buffers.widen()

    def _undo(self, draws: Draws, values: Values) -> None:
        """Put generators and buffers back; ``values`` are those of the buffers that were known to change."""
        self.ambient.set(draws)
        self.buffers.write((*values, *self.buffers.read()[len(values) :]))

    def _grads(self) -> list[tuple[int, int]]:
        """What was added up in the leaves that the loop is given: of each the sum, and how often it was changed."""
        leaves = [one if one.is_leaf else one._base for one in self.taper.constants]
        sums = [None if leaf is None or not leaf.is_leaf else leaf.grad for leaf in leaves]
        return [(id(one), 0 if one is None else one._version) for one in sums]

    def _refuse_backward(self) -> None:
        raise SourceError(
            f"{self.program.where()} calls backward() in its steps, which would happen again whenever one is replayed: "
            "use torch.autograd.grad there, or leave the loop as it is"
        )

    def _taped(self, state: Leaves, start: int, stop: int) -> TapedBlock:
        leaf = [isinstance(old, torch.Tensor) and old.is_leaf for old in self.first] if start == 0 else []
        try:
            return self.taper.tape(state, start, stop, self.lives[start], leaf)
        except Unknown as unknown:
            raise unknown.refuse() from None

    def tape(self, state: Leaves, start: int, stop: int) -> TapedBlock:
        """A block of steps of the way back with a tape."""
        if start and self.replays.wants(start):
            self.replays.see(start, state, self.program)
        try:
            block = self._taped(state, start, stop)
        except RuntimeError as error:
            if "in-place operation" in str(error):
                refuse_written("the state", self.program.where(), error)
            raise
        self._consistent(block)
        return block

    def _consistent(self, block: TapedBlock) -> None:
        width = len(block.values) - block.outs - sum(block.emitted)
        found = [end is not None for end in block.ends[:width]]
        if found != self.lives.get(block.stop, found):
            raise ReplayError(
                f"{self.program.where()}: other tensors are differentiated when steps {block.start} to "
                f"{block.stop - 1} are run again than were the first time: what a step does must depend on its state "
                "alone"
            )
        self._compared(block, width)

    def arrived(self, block: TapedBlock, emitted: list[list[Any]]) -> list[tuple[int, Any]]:
        found: dict[int, Any] = {}
        for stay in self.lasting.until(block.start, block.stop):
            seed = emitted[stay.step][stay.position]
            place = stay.places[block.start - stay.first]
            if seed is not None and block.roots[place] is not None:
                emitted[stay.step][stay.position] = None
                found[place] = seed
        return list(found.items())

    def let_go(self) -> None:
        self.lasting.end()
        super().let_go()
