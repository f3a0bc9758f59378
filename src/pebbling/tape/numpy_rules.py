"""Derivatives of functions written in NumPy, by pebbling's engine.

Every module of this family has the same three functions. ``function`` takes a list of arrays and gives
a list; ``None`` is a zero tangent or cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine import numpy as engine


def jvp(function: Callable[[list[Any]], list[Any]], x: Sequence[Any], dx: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs."""
    return engine.step_jvp(function, x, _clean(x, dx))[1]


def vjp(function: Callable[[list[Any]], list[Any]], x: Sequence[Any], g: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs."""
    _, pullback = engine.step_vjp(function, x)
    into: list[Any] = [None] * len(x)
    pullback(list(g), into)
    return into


def vjp_dot(
    function: Callable[[list[Any]], list[Any]],
    x: Sequence[Any],
    dx: Sequence[Any],
    g: Sequence[Any],
    dg: Sequence[Any],
) -> list[Any]:
    """How the cotangents of the inputs change."""
    into: list[Any] = [None] * len(x)
    change: list[Any] = [None] * len(x)
    engine.step_vjp_dot(function, x, _clean(x, dx), g, dg, into, change)
    return change


def _clean(x: Sequence[Any], dx: Sequence[Any]) -> list[Any]:
    return [tangent if engine.differentiable(value) else None for value, tangent in zip(x, dx)]
