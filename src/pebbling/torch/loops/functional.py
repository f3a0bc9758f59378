"""Loops inside ``torch.func`` transforms and forward-mode derivatives.

A transform wraps tensors, level by level, and a loop inside it is one function with rules of its own for
each level. The way back starts from the inputs as that level sees them and runs the loop once more, so it
differentiates, and is batched, like any other computation: ``jvp`` over ``grad`` keeps dual snapshots in the
slots and nothing else. That costs one more sweep than ``backward()`` does. Tensors that the body finds
for itself are put in the place where it finds them, for every level anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._functorch import TransformType, _unwrap_for_grad, _wrap_for_grad
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from ...budget import choose
from ...errors import PebblingError, SourceError
from ...loops.node import Outcome, straight
from ...loops.program import Leaves, Program
from ...loops.runtime import Options
from ..tensors import differentiable, nbytes, tensors_among
from .ambient import Ambient, without_fast_paths
from .blocked import Blocked, by_slots
from .buffers import Buffers
from .checkpointed import CheckpointedLoop
from .closure import Place, capture
from .no_second_backward import once
from .pullbacks import Pullbacks
from .snapshots import TensorSlots


def applies(leaves: Sequence[Any]) -> bool:
    """Whether a loop on these leaves is inside a transform, or carries tangents."""
    if torch._C._are_functorch_transforms_active():
        return True
    if forward_ad._current_level < 0:
        return False
    tensors = tensors_among(leaves)
    return any(_dual(tensor).tangent is not None for tensor in tensors)


def execute(program: Program, state: Leaves, consts: Leaves, options: Options, written: Sequence[int]) -> Outcome:
    """Run a program as one function that every transform knows how to go through."""
    call = FunctionalLoop(program, state, consts, options, frozenset(written))
    results = _Function.apply(call, *call.inputs)  # type: ignore[no-untyped-call]
    return call.outcome_with(results)


class FunctionalLoop:
    """One loop, and where its tensors stand among its leaves."""

    def __init__(
        self, program: Program, state: Leaves, consts: Leaves, options: Options, written: frozenset[int]
    ) -> None:
        self.program, self.width, self.options, self.written = program, len(state), options, written
        self._leaves = [*state, *consts]
        captured = capture(program.functions(), self._leaves)
        self.buffers = captured.buffers()
        self._found: list[list[Place]] = []
        self._places = [place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self.inputs = [self._leaves[place] for place in self._places]
        for place in self._places:
            self._leaves[place] = None
        for key, (name, tensor) in captured.tensors.items():
            places = captured.places[key]
            if not places:
                raise SourceError(
                    f"{name}, which {program.where()} uses, can't be followed through a transform of torch.func from "
                    "where it is: pass it as an argument of the loop"
                )
            self._found.append(places)
            self.inputs.append(tensor)
        self._outcome: Outcome | None = None
        self._kept: list[int] = []

    @contextmanager
    def filled(self, inputs: Sequence[torch.Tensor]) -> Iterator[tuple[Leaves, Leaves]]:
        """State and constants with these inputs, and what the body finds for itself in its place."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, inputs):
            leaves[place] = tensor
        with self.found(inputs[len(self._places) :]):
            yield leaves[: self.width], leaves[self.width :]

    @contextmanager
    def found(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Put tensors where the body finds them, and afterwards those that were there."""
        before = [[(place, place.exchange(tensor)) for place in places] for places, tensor in zip(self._found, tensors)]
        try:
            yield
        finally:
            for exchanged in before:
                for place, tensor in exchanged:
                    place.exchange(tensor)

    @property
    def counts(self) -> tuple[int, int]:
        """How many of the inputs are given, and how many are found."""
        return len(self._places), len(self._found)

    @property
    def state_places(self) -> list[int]:
        """The places of the state's tensors among the leaves of the state."""
        return [place for place in self._places if place < self.width]

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The tensors among the outputs; the rest is kept aside."""
        with self.filled(inputs) as (state, consts), without_fast_paths():
            private = TensorSlots("", self.written).private(state)
            state.clear()
            outcome = straight(self.program, private, consts)
        flat = outcome.flat()
        self._kept = [place for place, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]
        given = {id(tensor) for tensor in inputs}
        results = []
        for place in self._kept:
            leaf = flat[place]
            results.append(leaf.view_as(leaf) if id(leaf) in given else leaf)
            given.add(id(leaf))
            flat[place] = None
        self._outcome = outcome.like(flat)
        return tuple(results)

    def outcome_with(self, results: Sequence[torch.Tensor]) -> Outcome:
        """What the loop gave, with these tensors."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        flat = outcome.flat()
        for place, result in zip(self._kept, results):
            flat[place] = result
        return outcome.like(flat)

    def back(self, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None]) -> list[Any]:
        """One cotangent an input, by a sweep and a way back on the inputs as they are here."""
        given, _ = self.counts
        with self.filled(inputs) as (state, consts):
            taper = Pullbacks(self, list(inputs[given:]), consts, state)
            ambient = Ambient(list(inputs))
            course = _course(self.options, self.program, state)
            loop = CheckpointedLoop(
                self.program, course, state, taper, taper.live, ambient, Buffers(self.buffers), [], False, False
            )
            with ambient.again():
                loop.sweep()
            loop.let_go()
            seeds: list[torch.Tensor | None] = [None] * (loop.width + loop.counts[0] + sum(loop.counts[1]))
            for place, cotangent in zip(self._kept, cotangents):
                seeds[place] = cotangent
            found, constants = loop.back(seeds, [True] * len(taper.constants))
        parts: list[Any] = [found[place] for place in self.state_places]
        parts += [None] * (given - len(parts))
        parts += [None] * len(self._found)
        for index, part in zip(taper.inputs, constants):
            parts[index] = part
        return parts


class _Function(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(call: FunctionalLoop, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return call.run(inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.call = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])
        ctx.mark_non_differentiable(*[out for out in output if not differentiable(out)])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        inputs = unwrap_dead_wrappers(ctx.saved_tensors)
        levels = retrieve_all_functorch_interpreters()
        if not levels or levels[-1].key() != TransformType.Grad:
            return (None, *_back(ctx.call, inputs, cotangents))
        # This level is the one that takes the gradient: what it computes is of no use to itself.
        top, level = levels[-1], levels[-1].level()
        below = [None if tensor is None else _unwrap_for_grad(tensor, level) for tensor in (*inputs, *cotangents)]
        with torch.enable_grad(), top.lower():
            found = _back(ctx.call, below[: len(inputs)], below[len(inputs) :])
        return (None, *[None if part is None else _wrap_for_grad(part, level) for part in found])

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors
        moving = [place for place, tensor in enumerate(inputs) if differentiable(tensor)]
        outputs: list[torch.Tensor] = []

        def whole(*moved: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values = list(inputs)
            for place, tensor in zip(moving, moved):
                values[place] = tensor
            outputs[:] = ctx.call.run(values)
            return tuple([out for out in outputs if differentiable(out)])

        # A product of a value that moves and one that stays takes a slow way: what stays moves by zero.
        directions = [
            torch.zeros_like(inputs[place]) if (tangent := tangents[place]) is None else tangent for place in moving
        ]
        pushed = iter(_pushed(whole, [inputs[place] for place in moving], directions))
        return tuple([next(pushed) if differentiable(out) else None for out in outputs])


def _back(call: FunctionalLoop, inputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The way back, followed by the transforms further out that take gradients of it; autograd itself does not."""
    if any(level.key() == TransformType.Grad for level in retrieve_all_functorch_interpreters()):
        return call.back(inputs, cotangents)
    with torch.no_grad():
        found = call.back(inputs, cotangents)
    return once(found, [*inputs, *cotangents]) if torch.is_grad_enabled() else found


def _pushed(
    function: Callable[..., tuple[torch.Tensor, ...]], values: list[torch.Tensor], directions: list[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """The tangents of a function's results."""
    if torch._C._are_functorch_transforms_active():
        return torch.func.jvp(function, tuple(values), tuple(directions))[1]
    # Forward mode without a transform has one level, which is in use.
    with forward_ad._set_fwd_grad_enabled(True):
        make: Any = forward_ad.make_dual
        plain = [_dual(value).primal for value in values]
        results = function(*[make(value, tangent) for value, tangent in zip(plain, directions)])
        return [_dual(result).tangent for result in results]


_dual: Any = forward_ad.unpack_dual


def _course(options: Options, program: Program, state: Leaves) -> Blocked:
    budget, steps = options.settle.budget, program.length
    if budget.memory is not None:
        raise PebblingError(
            "memory= can't be measured inside a transform of torch.func, where tensors have no storage of their own: "
            "give slots="
        )
    found = choose(budget, steps, f"the loop over {program.where()}")
    assert found is not None
    if budget.schedule is not None or steps is None:
        return Blocked(found, steps)
    return by_slots(steps, budget.slots, 3 * nbytes(state))
