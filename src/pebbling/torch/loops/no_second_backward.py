"""Gradients that can be used for anything but one: differentiating them again in reverse, which is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import PebblingError
from ..tensors import tensors_among

TWICE = (
    "a checkpointed loop was differentiated twice in reverse, which would need the tape of the whole way back. Take "
    "the second derivative forwards: torch.func.jvp(torch.func.grad(f), (x,), (v,)) gives the product of the Hessian "
    "with v within the memory of the slots"
)


def once(parts: Sequence[torch.Tensor | None], sources: Sequence[Any]) -> list[torch.Tensor | None]:
    """The same gradients, which raise where they are differentiated with respect to one of the ``sources``."""
    given = [part for part in parts if part is not None]
    followed = tensors_among(sources)
    apply: Any = _Once.apply
    marked = iter(apply(len(given), *given, *followed) if given and followed else given)
    return [None if part is None else next(marked) for part in parts]


class _Once(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([part.view_as(part) for part in tensors[:count]])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.count = inputs[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        raise PebblingError(TWICE)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([tangent.view_as(tangent) for tangent in tangents[: ctx.count]])
