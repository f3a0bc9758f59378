"""Neighbours on a grid: differences, integrals, convolution, padding, interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, rule
from ..traced import plain

BOTH = slice(2)


def _between(x: Any, start: int | None, stop: int | None, axis: int) -> Any:
    return x[(*[slice(None)] * (axis % np.ndim(x)), slice(start, stop))]


@composed(np.diff, exact=True)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = [np.shape(a)[i] if i != axis % np.ndim(a) else 1 for i in range(np.ndim(a))]
    parts = [part if part is None or np.ndim(part) else np.broadcast_to(part, ends) for part in (prepend, append)]
    joined = [part for part in (parts[0], a, parts[1]) if part is not None]
    a = np.concatenate(joined, axis) if len(joined) > 1 else a
    for _ in range(n):
        a = _between(a, 1, None, axis) - _between(a, None, -1, axis)
    return a


@composed(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    inner = np.diff(np.ravel(ary))
    parts = [np.ravel(part) for part in (to_begin, inner, to_end) if part is not None]
    return np.concatenate(parts) if len(parts) > 1 else inner


@composed(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    steps = dx
    if x is not None:
        steps = np.diff(x, axis=axis if np.ndim(x) > 1 else -1)
        if np.ndim(x) == 1:
            shape = [1] * np.ndim(y)
            shape[axis] = -1
            steps = np.reshape(steps, shape)
    return np.sum(steps * (_between(y, 1, None, axis) + _between(y, None, -1, axis)) / 2.0, axis=axis)


@composed(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    ndim = np.ndim(f)
    axes = range(ndim) if axis is None else [a % ndim for a in np.atleast_1d(axis).tolist()]
    spacings = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    results = [_gradient(np.moveaxis(f, a, 0), h, a, edge_order) for a, h in zip(axes, spacings)]
    return results[0] if len(results) == 1 else tuple(results)


def _gradient(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    steps = np.diff(h) if np.ndim(h) else h * np.ones(len(f) - 1)
    steps = np.reshape(steps, (-1,) + (1,) * (np.ndim(f) - 1))
    before, after = steps[:-1], steps[1:]
    inner = (
        -after / (before * (before + after)) * f[:-2]
        + (after - before) / (before * after) * f[1:-1]
        + before / (after * (before + after)) * f[2:]
    )
    if edge_order == 1:
        first, last = (f[1] - f[0]) / steps[0], (f[-1] - f[-2]) / steps[-1]
    else:
        first = _one_sided(f[0], f[1], f[2], steps[0], steps[1])
        last = -_one_sided(f[-1], f[-2], f[-3], steps[-1], steps[-2])
    return np.moveaxis(np.concatenate([first[None], inner, last[None]]), 0, axis)


def _one_sided(f0: Any, f1: Any, f2: Any, h1: Any, h2: Any) -> Any:
    total = h1 + h2
    return -(2 * h1 + h2) / (h1 * total) * f0 + total / (h1 * h2) * f1 - h1 / (h2 * total) * f2


@rule(np.convolve, arrays=BOTH)
def convolve(y: Any, a: Any, v: Any, mode: Any = "full") -> Any:
    first, second = np.size(a), np.size(v)

    def whole(g: Any) -> Any:
        return np.pad(g, _cut(first, second, mode))

    return (
        [lambda g: np.correlate(whole(g), v, "valid"), lambda g: np.correlate(whole(g), a, "valid")],
        [lambda t: np.convolve(t, v, mode), lambda t: np.convolve(a, t, mode)],
    )


def _cut(first: int, second: int, mode: str) -> tuple[int, int]:
    """How many elements of the full convolution a mode leaves out at each end."""
    least = min(first, second)
    if mode == "same":
        return (least - 1) // 2, (least - 1) - (least - 1) // 2
    return (least - 1, least - 1) if mode == "valid" else (0, 0)


@composed(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    # Where the second is longer, NumPy swaps the two and turns the result round.
    if np.size(v) > np.size(a):
        return np.flip(np.convolve(np.conjugate(v), np.flip(a), mode))
    return np.convolve(a, np.conjugate(np.flip(v)), mode)


@composed(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Any:
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(i, pad_width.get(i - np.ndim(array), (0, 0))) for i in range(np.ndim(array))]
        pad_width = [(width, width) if np.ndim(width) == 0 else width for width in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width), (np.ndim(array), 2)).tolist()
    if mode == "constant":
        return _pad_constant(array, widths, constant_values)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise refuse(
            f"np.pad with mode={mode!r} has no derivative rule", "constant, edge, reflect, symmetric and wrap have one"
        )
    for axis, width in enumerate(widths):
        if any(width):
            array = np.take(array, np.pad(np.arange(np.shape(array)[axis]), width, mode=mode), axis=axis)
    return array if any(map(any, widths)) else np.copy(array)


def _pad_constant(array: Any, widths: Any, values: Any) -> Any:
    values = values if hasattr(values, "level") else np.broadcast_to(np.asarray(values), (np.ndim(array), 2)).tolist()
    for axis, width in enumerate(widths):
        ends = []
        for side in (0, 1):
            shape = [*np.shape(array)]
            shape[axis] = width[side]
            value = values[axis][side] if isinstance(values, list) else values
            ends.append(np.broadcast_to(value, shape))
        array = np.concatenate([ends[0], array, ends[1]], axis)
    return array


@composed(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        raise refuse("np.interp with period= has no derivative rule", "Extend xp and fp by one period on both sides")
    n = np.size(plain(xp))
    i = np.clip(np.searchsorted(plain(xp), plain(x), side="right") - 1, 0, n - 2)
    x0, x1, f0, f1 = np.take(xp, i), np.take(xp, i + 1), np.take(fp, i), np.take(fp, i + 1)
    inside = f0 + (f1 - f0) / (x1 - x0) * (x - x0)
    low, high = plain(x) < plain(xp)[0], plain(x) > plain(xp)[-1]
    inside = np.where(low, fp[0] if left is None else left, inside)
    return np.where(high, fp[-1] if right is None else right, inside)
