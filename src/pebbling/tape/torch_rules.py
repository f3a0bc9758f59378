"""Derivatives of functions of torch tensors, all by going back: that is what modules and kernels support.

A tangent is the derivative of the pullback, which is linear in its cotangent, with respect to that
cotangent. The change of a pullback along dx is the gradient of its inner product with dx, because
second derivatives are symmetric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..store.extra import require
from .convert import differentiable, framework

Function = Callable[[list[Any]], list[Any]]


def jvp(function: Function, x: Sequence[Any], dx: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs."""
    torch = _torch()
    with torch.enable_grad():
        inputs, outputs = _run(function, x)
        seeds = [value.new_zeros(value.shape).requires_grad_() if _followed(value) else None for value in outputs]
        pulled = _pull(torch, inputs, outputs, seeds, create_graph=True)
        found = _gradients(torch, _inner(pulled, dx), seeds)
    return [value.new_zeros(value.shape) if part is None else part for value, part in zip(outputs, found)]


def vjp(function: Function, x: Sequence[Any], g: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs."""
    torch = _torch()
    with torch.enable_grad():
        inputs, outputs = _run(function, x)
        return _pull(torch, inputs, outputs, g)


def vjp_dot(function: Function, x: Sequence[Any], dx: Sequence[Any], g: Sequence[Any], dg: Sequence[Any]) -> list[Any]:
    """How the cotangents of the inputs change."""
    torch = _torch()
    with torch.enable_grad():
        inputs, outputs = _run(function, x)
        pulled = _pull(torch, inputs, outputs, g, create_graph=True)
        change = _gradients(torch, _inner(pulled, dx), inputs, retain_graph=True)
        linear = _pull(torch, inputs, outputs, dg)
    return [one if two is None else two if one is None else one + two for one, two in zip(change, linear)]


def _torch() -> Any:
    return require("torch", "torch", "op.from_torch")


def _run(function: Function, x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The inputs, followed, and the outputs."""
    inputs = [
        value.detach().requires_grad_() if framework(value) == "torch" and differentiable(value) else value
        for value in x
    ]
    return inputs, list(function(list(inputs)))


def _followed(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _pull(
    torch: Any, inputs: Sequence[Any], outputs: Sequence[Any], seeds: Sequence[Any], create_graph: bool = False
) -> list[Any]:
    pairs = [(out, seed) for out, seed in zip(outputs, seeds) if seed is not None and _followed(out)]
    followed = [value for value in inputs if _followed(value)]
    if not pairs or not followed:
        return [None] * len(inputs)
    found = torch.autograd.grad(
        [out for out, _ in pairs],
        followed,
        [seed for _, seed in pairs],
        create_graph=create_graph,
        retain_graph=True,
        allow_unused=True,
    )
    return _spread(found, inputs)


def _gradients(torch: Any, value: Any, inputs: Sequence[Any], retain_graph: bool = False) -> list[Any]:
    followed = [part for part in inputs if _followed(part)]
    if value is None or not _followed(value) or not followed:
        return [None] * len(inputs)
    return _spread(torch.autograd.grad(value, followed, retain_graph=retain_graph, allow_unused=True), inputs)


def _inner(first: Sequence[Any], second: Sequence[Any]) -> Any:
    parts = [(one * two).sum() for one, two in zip(first, second) if one is not None and two is not None]
    return sum(parts[1:], parts[0]) if parts else None


def _spread(found: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    parts = iter(found)
    return [next(parts) if _followed(value) else None for value in inputs]
