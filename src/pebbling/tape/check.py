"""Proof of an op's rules at a point.

- Adjoint test: <jvp(dx), g> = <dx, vjp(g)> for random dx and g, to rounding.
- Taylor tests: along a random line, the remainder of first order shrinks as the square of the step, for
  the function with its vjp, the function with its jvp, and the vjp with its vjp_dot.
- Habits: the function leaves its inputs alone, gives the same twice, and returns new arrays each time, and
  so does the vjp. A replay relies on all of it.

What is tested is what was given; a rule that a tape would build by itself is not. Complex inputs are
taken as pairs of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..drive.taylor import Taylor, taylor_test
from ..tree import copy, differing, kind_of
from . import rules
from .convert import differentiable, inner, to
from .foreign import as_list
from .ops import Op

_ROUNDING = 1e4
_SIZES = (1e-2, 5e-3, 2.5e-3, 1.25e-3, 6.25e-4)


@dataclass
class Check:
    """What was tested and how it went; printable. ``passed`` is true if all of it was well."""

    op: str
    lines: list[str] = field(default_factory=list)
    taylor: dict[str, Taylor] = field(default_factory=dict)
    passed: bool = True

    def note(self, name: str, good: bool, found: str) -> None:
        """Add the outcome of one test."""
        self.passed = self.passed and good
        self.lines.append(f"{name:<44} {'passed' if good else 'FAILED'}   {found}".rstrip())

    def __str__(self) -> str:
        return "\n".join([f"op {self.op}", *self.lines])

    def __bool__(self) -> bool:
        return self.passed


def check(op: Op, inputs: tuple[Any, ...], statics: dict[str, Any], wrt: Sequence[int] | None, seed: int) -> Check:
    """Test an op at a point; ``wrt`` are the places of the inputs to vary."""
    result = Check(op.name)
    random = np.random.default_rng(seed)
    before = copy(list(inputs))
    found = op.function(*inputs, **statics)
    single, y = not isinstance(found, tuple), as_list(found)
    _habits(result, "the function", lambda: as_list(op.function(*inputs, **statics)), y, inputs, before)
    point = _Point(op, single, list(inputs), statics)
    varied = range(len(inputs)) if wrt is None else wrt
    dx = [_direction(value, random) if place in varied else None for place, value in enumerate(inputs)]
    g, dg = ([_direction(value, random) for value in y] for _ in range(2))
    if "vjp" in op.rules:
        cotangents = point.vjp(0.0, dx, g)
        _habits(result, "the vjp", lambda: point.vjp(0.0, dx, g), cotangents, inputs, before)
        _taylor(result, "vjp, Taylor test", lambda t: (point.value(t, dx, g), _dot(point.vjp(t, dx, g), dx)), y)
    if callable(op.rules.get("jvp")):
        _taylor(result, "jvp, Taylor test", lambda t: (point.value(t, dx, g), _dot(point.jvp(t, dx), g)), y)
        if "vjp" in op.rules:
            _adjoint(result, _dot(point.jvp(0.0, dx), g), _dot(point.vjp(0.0, dx, g), dx), [*inputs, *y])
    if callable(op.rules.get("vjp_dot")):
        w = [None if along is None else _direction(value, random) for value, along in zip(inputs, dx)]
        _taylor(
            result,
            "vjp_dot, Taylor test",
            lambda t: (
                _dot(point.vjp(t, dx, _moved(g, dg, t)), w),
                _dot(point.vjp_dot(t, dx, _moved(g, dg, t), dg), w),
            ),
            y,
        )
    for name in ("vjp", "jvp", "vjp_dot"):
        if not callable(op.rules.get(name)):
            result.lines.append(f"{name:<44} not given")
    return result


class _Point:
    """The op and its rules along a line through the inputs."""

    def __init__(self, op: Op, single: bool, inputs: list[Any], statics: dict[str, Any]) -> None:
        self.op, self.single, self.inputs, self.statics = op, single, inputs, statics

    def _at(self, t: float, dx: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        x = _moved(self.inputs, dx, t)
        return x, as_list(self.op.function(*x, **self.statics))

    def value(self, t: float, dx: Sequence[Any], g: Sequence[Any]) -> float:
        return _dot(self._at(t, dx)[1], g)

    def vjp(self, t: float, dx: Sequence[Any], g: Sequence[Any]) -> list[Any]:
        return rules.vjp(self.op, self.single, *self._at(t, dx), g, self.statics)

    def jvp(self, t: float, dx: Sequence[Any]) -> list[Any]:
        return rules.jvp(self.op, self.single, *self._at(t, dx), dx, self.statics)

    def vjp_dot(self, t: float, dx: Sequence[Any], g: Sequence[Any], dg: Sequence[Any]) -> list[Any]:
        x, y = self._at(t, dx)
        dy = rules.jvp(self.op, self.single, x, y, dx, self.statics)
        return rules.vjp_dot(self.op, self.single, x, dx, y, dy, g, dg, self.statics)


def _taylor(result: Check, name: str, value_and_slope: Callable[[float], tuple[float, float]], y: list[Any]) -> None:
    sizes = _SIZES if _precision(y) < 1e-10 else tuple(10 * size for size in _SIZES)
    taylor = taylor_test(value_and_slope, 0.0, 1.0, sizes)
    rounding = _ROUNDING * _precision(y) * taylor.scale
    good = taylor.passed or all(remainder <= rounding for remainder in taylor.remainders)
    result.taylor[name] = taylor
    result.note(name, good, "order " + " ".join(f"{order:.2f}" for order in taylor.orders))


def _adjoint(result: Check, forward: float, backward: float, values: list[Any]) -> None:
    size = max(abs(forward), abs(backward), 1e-300)
    off = abs(forward - backward) / size
    result.note(
        "vjp against jvp, <jvp dx, g> = <dx, vjp g>", off <= _ROUNDING * _precision(values), f"off by {off:.1e}"
    )


def _habits(
    result: Check, name: str, call: Callable[[], list[Any]], first: list[Any], inputs: Sequence[Any], before: list[Any]
) -> None:
    kept = copy(first)
    second = call()
    shared = any(_shares(one, two) for one in first for two in second if not any(one is x for x in inputs))
    result.note(f"{name} leaves its inputs as they are", differing(list(inputs), before) is None, "")
    result.note(f"{name} returns new arrays each time", not shared, "")
    result.note(f"{name} gives the same twice", differing(kept, second) is None, "")


def _shares(one: Any, two: Any) -> bool:
    if kind_of(one).name == "torch" and kind_of(two).name == "torch":
        return bool(one.numel() and one.data_ptr() == two.data_ptr())
    return isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and np.may_share_memory(one, two)


def _direction(value: Any, random: np.random.Generator) -> Any:
    """A random array of the size and kind of a value; ``None`` where there is no derivative."""
    if not differentiable(value):
        return None
    array = np.asarray(to("numpy", value))
    scale = float(np.sqrt(np.mean(np.abs(array) ** 2))) if array.size else 1.0
    made = random.standard_normal(array.shape) * (scale or 1.0)
    if array.dtype.kind == "c":
        made = made + 1j * random.standard_normal(array.shape) * (scale or 1.0)
    made = np.asarray(made, array.dtype)
    name = kind_of(value).name
    return to(name, made) if name in ("torch", "jax") else made[()]


def _moved(values: Sequence[Any], directions: Sequence[Any], size: float) -> list[Any]:
    return [value if along is None else value + size * along for value, along in zip(values, directions)]


def _dot(one: Sequence[Any], two: Sequence[Any]) -> float:
    return sum(inner(a, b) for a, b in zip(one, two) if a is not None and b is not None)


def _precision(values: Sequence[Any]) -> float:
    kinds = [np.asarray(to("numpy", value)).dtype for value in values if differentiable(value)]
    return max((float(np.finfo(dtype).eps) for dtype in kinds), default=float(np.finfo(float).eps))
