"""Derivatives of functions of jax arrays, by ``jax.jvp`` and ``jax.vjp``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..store.extra import require
from .convert import differentiable, framework


def jvp(function: Callable[[list[Any]], list[Any]], x: Sequence[Any], dx: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs."""
    active, run = _active(function, x)
    tangents = tuple(_filled(dx[i], x[i]) for i in active)
    return list(_jax().jvp(run, tuple(x[i] for i in active), tangents)[1])


def vjp(function: Callable[[list[Any]], list[Any]], x: Sequence[Any], g: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs."""
    active, run = _active(function, x)
    outputs, pull = _jax().vjp(run, *(x[i] for i in active))
    return _spread(pull(tuple(map(_filled, g, outputs))), active, len(x))


def vjp_dot(
    function: Callable[[list[Any]], list[Any]],
    x: Sequence[Any],
    dx: Sequence[Any],
    g: Sequence[Any],
    dg: Sequence[Any],
) -> list[Any]:
    """How the cotangents of the inputs change."""
    active, run = _active(function, x)
    primals = tuple(x[i] for i in active)
    outputs = _jax().eval_shape(run, *primals)
    cotangents = tuple(map(_filled, g, outputs))

    def pulled(inputs: tuple[Any, ...], seeds: tuple[Any, ...]) -> Any:
        return _jax().vjp(run, *inputs)[1](seeds)

    tangents = (tuple(_filled(dx[i], x[i]) for i in active), tuple(map(_filled, dg, outputs)))
    return _spread(_jax().jvp(pulled, (primals, cotangents), tangents)[1], active, len(x))


def _jax() -> Any:
    return require("jax", "jax", "op.from_jax")


def _active(function: Callable[[list[Any]], list[Any]], x: Sequence[Any]) -> tuple[list[int], Any]:
    """Which inputs have derivatives, and the function of these alone."""
    active = [i for i, value in enumerate(x) if framework(value) == "jax" and differentiable(value)]

    def run(*given: Any) -> tuple[Any, ...]:
        inputs = list(x)
        for i, value in zip(active, given):
            inputs[i] = value
        return tuple(function(inputs))

    return active, run


def _filled(tangent: Any, value: Any) -> Any:
    return _jax().numpy.zeros(value.shape, value.dtype) if tangent is None else tangent


def _spread(parts: Sequence[Any], active: Sequence[int], count: int) -> list[Any]:
    spread: list[Any] = [None] * count
    for i, part in zip(active, parts):
        spread[i] = part
    return spread
