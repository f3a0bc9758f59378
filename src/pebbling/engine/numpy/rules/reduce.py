"""Sums, products, extremes and other ways to make an axis shorter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..table import composed, rule
from ..traced import plain

ALL: Any = None


def spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Any:
    """A reduced array, repeated along the axes that were reduced."""
    if axis is not None and not keepdims:
        g = np.expand_dims(g, _axes(axis, len(shape)))
    if isinstance(g, np.generic) or (type(g) is ndarray and g.ndim == 0):
        # What np.broadcast_to does, at a seventh of its time: all elements are the same memory.
        g = np.asarray(g)
        return ndarray(shape, g.dtype, g, 0, (0,) * len(shape))
    return np.broadcast_to(g, shape)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple([a % ndim for a in axes])


def length(shape: tuple[int, ...], axis: Any) -> int:
    """How many elements become one."""
    sizes = shape if axis is None else [shape[a] for a in _axes(axis, len(shape))]
    return int(np.prod(sizes, dtype=int))


@rule(np.sum)
def sum(
    y: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = 0, where: Any = True,
) -> Any:  # fmt: skip
    shape = np.shape(x)

    def vjp(g: Any) -> Any:
        whole = spread(g, shape, axis, keepdims)
        return whole if where is True else np.where(where, whole, 0)

    return [vjp], [lambda t: np.sum(t, axis=axis, dtype=dtype, keepdims=keepdims, where=where)]


@rule(np.mean)
def mean(y: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    shape = np.shape(x)
    n = float(length(shape, axis))
    return (
        [lambda g: spread(g / n, shape, axis, keepdims)],
        [lambda t: np.mean(t, axis=axis, dtype=dtype, keepdims=keepdims)],
    )


@composed(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    if weights is None:
        value, total = np.mean(a, axis=axis, keepdims=keepdims), None
    else:
        if np.shape(weights) != np.shape(a):
            lead = np.ndim(a) - 1 - axis % np.ndim(a)
            weights = np.reshape(weights, np.shape(weights) + (1,) * lead)
        weights = np.broadcast_to(weights, np.shape(a))
        total = np.sum(weights, axis=axis, keepdims=keepdims)
        value = np.sum(a * weights, axis=axis, keepdims=keepdims) / total
    if not returned:
        return value
    return value, np.ones(np.shape(value)) * length(np.shape(a), axis) if total is None else total


@rule(np.var)
def var(
    y: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    shape = np.shape(x)
    scale = 2.0 / (length(shape, axis) - ddof)

    def slope() -> Any:
        return np.conjugate(x - np.mean(x, axis=axis, keepdims=True)) * scale

    return (
        [lambda g: spread(g, shape, axis, keepdims) * slope()],
        [lambda t: np.real(np.sum(t * slope(), axis=axis, keepdims=keepdims))],
    )


@composed(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    squared = np.var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    none = plain(squared) == 0
    if not np.any(none):
        return np.sqrt(squared)
    return np.where(
        none, 0.0, np.sqrt(np.where(none, 1.0, squared))
    )  # equal elements, where the slope is taken as zero


def _extreme(y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    shape = np.shape(x)

    def share() -> Any:
        most = y if keepdims or axis is None else np.expand_dims(y, _axes(axis, len(shape)))
        same = np.equal(x, most)
        return same / np.maximum(np.sum(same, axis=axis, keepdims=True), 1)

    return (
        [lambda g: spread(g, shape, axis, keepdims) * share()],
        [lambda t: np.sum(t * share(), axis=axis, keepdims=keepdims)],
    )


@rule(np.max, np.amax, np.min, np.amin)
def extreme(y: Any, x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return _extreme(y, x, axis, keepdims)


@composed(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


@composed(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Halves multiplied together, so that zeros need no case of their own."""
    ndim = np.ndim(a)
    axes = tuple(range(ndim)) if axis is None else _axes(axis, ndim)
    kept = [n for i, n in enumerate(np.shape(a)) if i not in axes]
    x = np.reshape(np.moveaxis(a, axes, range(len(axes))), (-1, *kept))
    while len(x) > 1:
        half = len(x) // 2
        product = x[:half] * x[half : 2 * half]
        x = np.concatenate([product, x[2 * half :]]) if len(x) % 2 else product
    value = x[0] if len(x) else np.ones(kept)
    if dtype is not None:
        value = value.astype(dtype)
    return np.reshape(value, [1 if i in axes else n for i, n in enumerate(np.shape(a))]) if keepdims else value


@rule(np.cumsum)
def cumsum(y: Any, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    shape = np.shape(x)
    along = 0 if axis is None else axis

    def vjp(g: Any) -> Any:
        return np.reshape(np.flip(np.cumsum(np.flip(g, along), axis=along), along), shape)

    return [vjp], [lambda t: np.cumsum(t, axis=axis, dtype=dtype)]


@composed(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Products of 1, 2, 4, … neighbours, so that zeros need no case of their own."""
    x = np.ravel(a) if axis is None else np.moveaxis(a, axis, 0)
    if dtype is not None:
        x = x.astype(dtype)
    reach = 1
    while reach < len(x):
        x = np.concatenate([x[:reach], x[reach:] * x[:-reach]])
        reach *= 2
    return x if axis is None else np.moveaxis(x, 0, axis)


@composed(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.sum(np.where(np.isnan(a), 0, a), axis=axis, dtype=dtype, keepdims=keepdims)


@composed(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    seen = np.sum(~np.isnan(a), axis=axis, keepdims=keepdims)
    return np.nansum(a, axis=axis, dtype=dtype, keepdims=keepdims) / seen


@composed(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.max(np.where(np.isnan(a), -np.inf, a), axis=axis, keepdims=keepdims)


@composed(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.min(np.where(np.isnan(a), np.inf, a), axis=axis, keepdims=keepdims)
