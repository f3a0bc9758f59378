"""Functions of two numbers, element by element and broadcast."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ..table import elementwise, real_only, rule

BOTH = slice(2)


@rule(np.add, operator.add, arrays=BOTH)
def add(z: Any, x: Any, y: Any) -> Any:
    return [lambda g: g, lambda g: g], [lambda t: t, lambda t: t]


@rule(np.subtract, operator.sub, arrays=BOTH)
def subtract(z: Any, x: Any, y: Any) -> Any:
    return [lambda g: g, lambda g: -g], [lambda t: t, lambda t: -t]


for multiply in (np.multiply, operator.mul):
    elementwise(multiply, lambda z, x, y: lambda: y, lambda z, x, y: lambda: x)


@rule(np.divide, operator.truediv, arrays=BOTH)
def divide(z: Any, x: Any, y: Any) -> Any:
    return [lambda g: g / y, lambda g: -(g / y) * z], [lambda t: t / y, lambda t: -(t / y) * z]


def base_slope(z: Any, x: Any, p: Any) -> Any:
    """The slope of ``x ** p`` in ``x``."""
    if type(p) in (int, float):
        if p == 2:
            return lambda: 2.0 * x
        return (lambda: p * x ** (p - 1)) if p != 0 else (lambda: 0.0)
    return lambda: p * x ** np.where(p == 0, 1, p - 1)


def _exponent_slope(z: Any, x: Any, p: Any) -> Any:
    return lambda: z * np.log(np.where(x == 0, 1, x))


for power in (np.power, np.float_power, operator.pow):
    elementwise(power, base_slope, _exponent_slope)

for remainder in (np.remainder, operator.mod):
    elementwise(remainder, lambda z, x, y: lambda: 1.0, lambda z, x, y: lambda: -np.floor_divide(x, y))

elementwise(np.fmod, lambda z, x, y: lambda: 1.0, lambda z, x, y: lambda: -np.trunc(x / y))


def _larger(x: Any, y: Any) -> Any:
    return np.greater(x, y) + 0.5 * np.equal(x, y)


def _larger_or_other_missing(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y) & ~np.isnan(x), 1.0, _larger(x, y))


def _pick(func: Any, share: Any) -> None:
    """``func`` picks one of two numbers; equal ones have a half each."""

    def first(z: Any, x: Any, y: Any) -> Any:
        real_only(func, x, y)
        return lambda: share(x, y)

    def second(z: Any, x: Any, y: Any) -> Any:
        real_only(func, x, y)
        return lambda: share(y, x)

    elementwise(func, first, second)


_pick(np.maximum, _larger)
_pick(np.minimum, lambda x, y: _larger(y, x))
_pick(np.fmax, _larger_or_other_missing)
_pick(np.fmin, lambda x, y: np.where(np.isnan(y) & ~np.isnan(x), 1.0, _larger(y, x)))

elementwise(
    np.arctan2,
    lambda z, y, x: lambda: x / (x * x + y * y),
    lambda z, y, x: lambda: -y / (x * x + y * y),
)
elementwise(
    np.hypot,
    lambda z, x, y: lambda: x / np.where(z == 0, 1, z),
    lambda z, x, y: lambda: y / np.where(z == 0, 1, z),
)


def _weight(x: Any, z: Any, base: float) -> Any:
    # Both terms -inf leave -inf - -inf; neither weighs anything then.
    exponent = np.where(np.isneginf(z), 0, x - np.where(np.isneginf(z), 0, z))
    return np.exp(exponent * base) * ~np.isneginf(z)


elementwise(
    np.logaddexp,
    lambda z, x, y: lambda: _weight(x, z, 1.0),
    lambda z, x, y: lambda: _weight(y, z, 1.0),
)
elementwise(
    np.logaddexp2,
    lambda z, x, y: lambda: _weight(x, z, math.log(2.0)),
    lambda z, x, y: lambda: _weight(y, z, math.log(2.0)),
)
elementwise(np.copysign, lambda z, x, y: lambda: np.sign(x) * np.copysign(1.0, y), None)
elementwise(np.heaviside, None, lambda z, x, half: lambda: np.equal(x, 0))
elementwise(np.ldexp, lambda z, x, n: lambda: np.ldexp(1.0, n), None)
