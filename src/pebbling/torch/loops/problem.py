"""What is known of a loop before it runs: what it reaches, and what of its state is differentiated.

A first step is taken on trial where the body can't be seen through, or where only some of the state
requires gradients: its graph shows the tensors that it reached, and which leaves of the state a derivative
flows into. More steps follow for as long as more leaves are found. Generators and buffers are put back.
"""

from __future__ import annotations

from typing import Any

import torch

from ...errors import PebblingError
from ...loops.program import Leaves, Program
from ...store import Store
from ..tensors import differentiable, requires_grad, tensors_among
from .ambient import Ambient, without_fast_paths
from .blocked import Blocked
from .buffers import Buffers
from .checkpointed import CheckpointedLoop
from .closure import Closure
from .snapshots import TensorSlots, refuse_written, version
from .taper import Taper
from .tapes import Unknown
from .varied import VariedLoop


class LoopProblem:
    """A loop that is about to run."""

    def __init__(
        self, program: Program, captured: Closure, state: Leaves, consts: Leaves, written: frozenset[int]
    ) -> None:
        self.program, self.state, self.consts, self.written = program, state, consts, written
        self.captured = captured
        tensors = tensors_among((*state, *consts))
        tensors += [tensor for _, tensor in self.captured.tensors.values()]
        self.watched = tensors
        """Tensors that nobody may write into while the loop can still be differentiated."""
        self.ambient = Ambient(tensors)
        self.graded = self.captured.compiled or self.ambient.casts
        self.buffers = Buffers(self.captured.buffers())
        self.varies = program.varies
        self.asked: Any = None
        """The budget, where what a step takes depends on it: the loops inside have a part of it."""
        self.is_outer = False
        """Whether there are such loops."""
        self.constants: list[torch.Tensor] = []
        given = self._constants()
        self.taper = Taper(program, len(state), given, self._inner, written, self.ambient.casts)
        self.taper.looks = not self.captured.closed or self.ambient.casts
        self.live = [requires_grad(leaf) for leaf in state]
        self.differentiated = any(self.live) or bool(self.constants)
        if self.varies:
            self._learn()
            return
        partly = any(differentiable(leaf) and not one for leaf, one in zip(state, self.live))
        if self.taper.looks or self.captured.modules or (self.differentiated and partly):
            self._try()

    def loop(self, course: Blocked, verify: str | bool, store: Store | None, in_bytes: bool) -> CheckpointedLoop:
        """The loop, ready to run on a course."""
        return (VariedLoop if self.varies else CheckpointedLoop)(
            self.program,
            course,
            self.state,
            self.taper,
            self.live,
            self.ambient,
            self.buffers,
            self.watched,
            self.graded,
            verify,
            store,
            in_bytes,
        )

    def _constants(self) -> Leaves:
        """The constants as the body gets them: those that are differentiated, cut off from where they come from."""
        made: dict[int, torch.Tensor] = {}
        self._inner: list[torch.Tensor] = []
        given = list(self.consts)
        for place, leaf in enumerate(self.consts):
            if not requires_grad(leaf):
                continue
            if id(leaf) in self.captured.tensors:
                continue  # the body reaches the tensor itself as well, and both are one
            inner = made.get(id(leaf))
            if inner is None:
                inner = leaf.detach().requires_grad_()
                if (self.ambient.casts or self.varies) and not leaf.is_leaf:
                    inner = inner.view_as(inner)
                made[id(leaf)] = inner
                self.constants.append(leaf)
                self._inner.append(inner)
            given[place] = inner
        for name, tensor in self.captured.tensors.values():
            if tensor.requires_grad:
                if tensor.retains_grad and not tensor.is_leaf:
                    raise PebblingError(
                        f"{name}, which {self.program.where()} uses, keeps its gradient (retain_grad) and is not an "
                        "argument of the loop: pass it as one"
                    )
                self.constants.append(tensor)
                self._inner.append(tensor)
        return given

    def _learn(self) -> None:
        """Let the sweep find out what the loop reaches, except for the buffers that it updates."""
        self.differentiated = self.differentiated or not self.captured.closed
        # A step may switch autocast on for itself.
        self.taper.looks = self.taper.apart = True
        self.taper.learn = self._add
        if self.captured.buffers():
            draws, before = self.ambient.draws(), self.buffers.read()
            program, state = self.program, TensorSlots("", self.written).private(self.state)
            try:
                if program.length or (program.length is None and program.goes_on(state, 0)):
                    with without_fast_paths():
                        self.taper.tape(state, 0, 1, self.live)
                self.buffers.settle(before)
            finally:
                self.ambient.set(draws)
                self.buffers.write(tuple([value for value, one in zip(before, self.buffers.changed) if one]))

    def _add(self, leaf: torch.Tensor) -> None:
        self.taper.add(leaf)
        self.constants.append(leaf)

    def _try(self) -> None:
        program, state = self.program, TensorSlots("", self.written).private(self.state)
        draws, before = self.ambient.draws(), self.buffers.read()
        versions = list(map(version, self.watched))
        try:
            step = 0
            while (step < program.length) if program.length is not None else program.goes_on(state, step):
                state, grown = self._look(state, step)
                if step == 0:
                    self.buffers.settle(before)
                    before = tuple([value for value, one in zip(before, self.buffers.changed) if one])
                step += 1
                if not grown or step > len(self.state):
                    break
            if step == 0:
                self.buffers.settle(before)
                before = ()
        finally:
            self.ambient.set(draws)
            self.buffers.write(before)
        for tensor, count in zip(self.watched, versions):
            if version(tensor) != count:
                refuse_written(f"a tensor of shape {tuple(tensor.shape)}", program.where())

    def _look(self, state: Leaves, step: int) -> tuple[Leaves, bool]:
        """Tape one step; the state after it, and whether more leaves of it are differentiated than was known."""
        live = [one and differentiable(leaf) for one, leaf in zip(self.live, state)]
        while True:
            try:
                with without_fast_paths():
                    block = self.taper.tape(list(state), step, step + 1, live)
                break
            except Unknown as unknown:
                if unknown.hidden:
                    raise unknown.refuse() from None
                for leaf in unknown.leaves:
                    self.taper.add(leaf)
                    self.constants.append(leaf)
                self.differentiated = True
        after: Any = [
            leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in block.values[: len(self.state)]
        ]
        live = [one or end is not None for one, end in zip(self.live, block.ends)]
        grown, self.live = live != self.live, live
        self.differentiated = self.differentiated or any(live)
        return after, grown
