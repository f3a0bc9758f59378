"""Tapes of steps inside ``torch.func`` transforms: the counterpart of ``block.Taper`` there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...loops.program import Leaves
from ..tensors import differentiable, tensors_among
from .tapes import Sums

if TYPE_CHECKING:
    from .functional import FunctionalLoop


@dataclass
class Pulled:
    """Steps ``start … stop-1``, and what takes their cotangents back."""

    start: int
    stop: int
    values: Leaves
    ends: list[Any]
    outs: int
    emitted: list[int]
    flag: Any
    pullback: Callable[..., tuple[torch.Tensor, ...]] | None
    results: list[torch.Tensor]
    """Outputs that carry a derivative, for the shapes of cotangents that are not there."""
    carried: list[int]
    """Their places among all outputs."""


class Pullbacks:
    """Makes tapes with ``torch.func.vjp``, one level further in, and takes them back."""

    def __init__(self, call: FunctionalLoop, found: list[torch.Tensor], consts: Leaves, state: Leaves) -> None:
        self.call, self.program, self.width, self.written = call, call.program, call.width, call.written
        self.given, self.lets_go, self.looks = list(consts), False, False
        self.live = [differentiable(leaf) for leaf in state]
        places = [place for place, leaf in enumerate(consts) if isinstance(leaf, torch.Tensor)]
        before = len(call.state_places)
        self._moving = [place for place in places if differentiable(consts[place])]
        self._own = [index for index, tensor in enumerate(found) if differentiable(tensor)]
        self._found = found
        self.inputs = [before + places.index(place) for place in self._moving]
        self.inputs += [before + len(places) + index for index in self._own]
        """Where the constants that are differentiated stand among the inputs of the call."""
        self.constants = [*[consts[place] for place in self._moving], *[found[index] for index in self._own]]

    def untaped(self) -> AbstractContextManager[Any]:
        """Where steps run that nobody will reverse here: those further out may."""
        return nullcontext()

    def cut(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves as they are: cutting them off would reach through to the levels further out."""
        return list(leaves)

    def tape(self, state: Leaves, start: int, stop: int, live: Sequence[bool], leaf: Sequence[bool] = ()) -> Pulled:
        """Run steps with a tape; ``state`` comes back empty."""
        values = list(state)
        state.clear()
        roots = [value for value, one in zip(values, self.live) if one]
        aside: list[Any] = []
        block = Pulled(start, stop, [], [], 0, [], None, None, [], [])

        def steps(*moved: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
            rest = iter(moved)
            now = [next(rest) if one else value for value, one in zip(values, self.live)]
            for place in self.written:
                if isinstance(now[place], torch.Tensor):
                    now[place] = now[place].clone()
            given, found = list(self.given), list(self._found)
            constants = list(rest)
            for place, tensor in zip(self._moving, constants):
                given[place] = tensor
            for index, tensor in zip(self._own, constants[len(self._moving) :]):
                found[index] = tensor
            with self.call.found(found):
                flat = self._run(block, now, given)
            carried = [tensor for tensor in flat if differentiable(tensor)]
            # The running sums of the constants go in as the first parts of the next ones.
            aside.extend([_CARRIED if differentiable(leaf) else leaf for leaf in flat])
            tensors = tuple(tensors_among(aside))
            return (*carried, *[tensor.view_as(tensor) for tensor in constants]), tensors

        found: Any = torch.func.vjp(steps, *roots, *self.constants, has_aux=True)
        results, pullback, others = found
        block.carried = [place for place, leaf in enumerate(aside) if leaf is _CARRIED]
        tensors, rest = iter(others), iter(results)
        block.values = [
            next(rest) if leaf is _CARRIED else next(tensors) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in aside
        ]
        block.results = list(results)
        block.pullback = pullback
        block.ends = [None] * len(block.values)
        return block

    def _run(self, block: Pulled, values: Leaves, given: Leaves) -> Leaves:
        outs: Sequence[Any] = ()
        emitted: list[Any] = []
        block.emitted = []
        if not self.program.rich:
            return self.program.advance(values, given, block.start, block.stop)
        for step in range(block.start, block.stop):
            block.flag, values, outs, part = self.program.full(values, given, step)
            emitted += part
            block.emitted.append(len(part))
        block.outs = len(outs)
        return [*values, *outs, *emitted]

    def pull(
        self,
        block: Pulled,
        cotangents: Sequence[Any],
        sums: Sums,
        wanted: Sequence[bool],
        before: Sequence[tuple[int, torch.Tensor]] = (),
    ) -> list[Any]:
        """Cotangents of the leaves of the state before a block, from those of its outputs; ``sums`` go on."""
        seeds = [*[cotangents[place] for place in block.carried], *sums.constants]
        assert block.pullback is not None
        filled = [torch.zeros_like(like) if seed is None else seed for seed, like in zip(seeds, block.results)]
        found = list(block.pullback(tuple(filled)))
        block.pullback, block.results = None, []
        roots = sum(self.live)
        sums.constants[:] = found[roots:]
        rest = iter(found[:roots])
        return [next(rest) if one else None for one in self.live]

    def finish(self, sums: Sums) -> None:
        """Nothing is left over."""


_CARRIED = object()
