"""The Taylor test: a gradient is right if the remainder shrinks as the square of the step.

|f(x + h v) - f(x)| shrinks as h, and |f(x + h v) - f(x) - h <g, v>| as h², if and only if g is the
gradient in the direction v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tree import flatten, kind_of, unflatten
from ..tree.leaves import OTHER, PLAIN


@dataclass(frozen=True)
class Taylor:
    """Remainders with and without the gradient for shrinking steps, and their orders of convergence."""

    sizes: tuple[float, ...]
    without: tuple[float, ...]
    remainders: tuple[float, ...]
    scale: float

    @property
    def orders(self) -> tuple[float, ...]:
        """Order of the remainder from each size to the next; about 2 for a right gradient."""
        return _orders(self.sizes, self.remainders)

    @property
    def passed(self) -> bool:
        """Whether the remainder is of second order, or nothing but rounding."""
        if max(self.remainders) <= self._rounding:
            return True
        sound = [order for order, rest in zip(self.orders, self.remainders[1:]) if rest > self._rounding]
        return min(sound or self.orders[:1]) > 1.9

    @property
    def _rounding(self) -> float:
        return float(1e3 * np.finfo(float).eps * self.scale)

    def __str__(self) -> str:
        rows = ["        h   |f(x+hv)-f(x)|   remainder   order"]
        orders = (float("nan"), *self.orders)
        for size, without, remainder, order in zip(self.sizes, self.without, self.remainders, orders):
            rows.append(f"{size:9.2e}   {without:14.3e}   {remainder:9.2e}   {order:5.2f}")
        outcome = "passed" if self.passed else "FAILED: the gradient does not match the function"
        if self.passed and max(self.without) <= self._rounding:
            outcome += ", but the function does not change beyond rounding along this direction: this tests little"
        return "\n".join([*rows, outcome])


def taylor_test(
    value_and_gradient: Callable[[Any], tuple[Any, Any]],
    point: Any,
    direction: Any = None,
    sizes: tuple[float, ...] = (1e-2, 5e-3, 2.5e-3, 1.25e-3, 6.25e-4),
) -> Taylor:
    """Test a gradient along a direction, by default a random one of the size of ``point``.

    >>> taylor_test(lambda x: ((x**3).sum(), 3 * x**2), np.array([1.0, 2.0])).passed
    True
    """
    leaves, structure = flatten(point)
    if direction is None:
        generator = np.random.default_rng(0)
        along = [_random_like(leaf, generator) for leaf in leaves]
    else:
        along = flatten(direction)[0]
    if len(along) != len(leaves):
        raise ValueError(f"direction has {len(along)} leaves and point has {len(leaves)}")
    value, gradient = value_and_gradient(point)
    base = float(value)
    slope = sum(
        float(np.sum(np.asarray(g) * np.asarray(v)))
        for g, v in zip(flatten(gradient)[0], along, strict=True)
        if v is not None
    )
    without, remainders = [], []
    for size in sizes:
        moved = [leaf if v is None else leaf + size * v for leaf, v in zip(leaves, along)]
        change = float(value_and_gradient(unflatten(structure, moved))[0]) - base
        without.append(abs(change))
        remainders.append(abs(change - size * slope))
    return Taylor(tuple(sizes), tuple(without), tuple(remainders), max(abs(base), abs(slope), 1e-300))


def _random_like(leaf: Any, generator: np.random.Generator) -> Any:
    if isinstance(leaf, float):
        return float(generator.standard_normal()) * (abs(leaf) or 1.0)
    kind = kind_of(leaf)
    if kind is PLAIN or kind is OTHER or np.asarray(leaf).dtype.kind != "f":
        return None
    values = np.asarray(leaf)
    scale = float(np.sqrt(np.mean(values**2))) if values.size else 1.0
    return (generator.standard_normal(values.shape) * (scale or 1.0)).astype(values.dtype)


def _orders(sizes: tuple[float, ...], remainders: tuple[float, ...]) -> tuple[float, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(np.array(remainders[:-1]) / np.array(remainders[1:]))
        return tuple(float(order) for order in ratios / np.log(np.array(sizes[:-1]) / np.array(sizes[1:])))
