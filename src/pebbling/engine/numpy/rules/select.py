"""Elements chosen: by condition, by position, by order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..indexing import scatter
from ..refuse import refuse
from ..table import composed, primitive, real_only, rule
from ..traced import plain


@primitive(np.where, arrays=slice(1, 3))
def choose(y: Any, condition: Any, x: Any, other: Any) -> Any:
    """``np.where`` of three arguments."""
    condition = plain(condition)
    return (
        [lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g)],
        [lambda t: np.where(condition, t, 0), lambda t: np.where(condition, 0, t)],
    )


@composed(np.where, exact=True)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return np.where(plain(condition))
    return choose(plain(condition), x, y)


@composed(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = np.where(condition, choice, result)
    return result


@composed(np.piecewise, exact=True)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    conditions = condlist if isinstance(condlist, list | tuple) and np.ndim(condlist[0]) else [condlist]
    conditions = [np.asarray(plain(condition), bool) for condition in conditions]
    if len(funclist) == len(conditions) + 1:
        conditions.append(~np.any(conditions, axis=0))
    result = np.zeros_like(x)
    for condition, func in zip(conditions, funclist):
        result[condition] = func(x[condition], *args, **kw) if callable(func) else func
    return result


@composed(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """What lies on a bound counts as inside for one half, as with ``np.maximum``."""
    real_only(np.clip, a)
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


@rule(np.take)
def take(y: Any, x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    shape, dtype = np.shape(x), y.dtype
    size = shape[axis] if axis is not None else int(np.prod(shape))
    at = np.array(plain(indices))
    at = at % size if mode == "wrap" else np.clip(at, 0, size - 1) if mode == "clip" else at

    def vjp(g: Any) -> Any:
        if axis is None:
            return np.reshape(scatter(g, (at,), (size,), dtype), shape)
        return scatter(g, (*[slice(None)] * (axis % len(shape)), at), shape, dtype)

    return [vjp], [lambda t: np.take(t, at, axis=axis)]


@rule(np.take_along_axis)
def take_along_axis(y: Any, x: Any, indices: Any, axis: Any = -1) -> Any:
    shape, dtype = np.shape(x), y.dtype
    indices = np.array(plain(indices))

    def vjp(g: Any) -> Any:
        if axis is None:
            return np.reshape(scatter(g, (indices,), (int(np.prod(shape)),), dtype), shape)
        along = axis % len(shape)
        where = list(np.ix_(*[np.arange(n) for n in np.shape(g)]))
        where[along] = indices
        return scatter(g, tuple(where), shape, dtype)

    return [vjp], [lambda t: np.take_along_axis(t, indices, axis)]


@rule(np.diagonal, view=True)
def diagonal(y: Any, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    shape, dtype = np.shape(x), y.dtype

    def vjp(g: Any) -> Any:
        first, second = axis1 % len(shape), axis2 % len(shape)
        rows = np.arange(np.shape(g)[-1]) + max(-offset, 0)
        where: list[Any] = [slice(None)] * len(shape)
        where[first], where[second] = rows, rows - max(-offset, 0) + max(offset, 0)
        # Two index arrays side by side put their axis where they stand, apart from each other in front.
        position = first if abs(first - second) == 1 and first < second else min(first, second)
        position = position if abs(first - second) == 1 else 0
        return scatter(np.moveaxis(g, -1, position), tuple(where), shape, dtype)

    return [vjp], [lambda t: np.diagonal(t, offset, axis1, axis2)]


@composed(np.diag, exact=True)
def diag(v: Any, k: int = 0) -> Any:
    if np.ndim(v) == 2:
        return np.diagonal(v, k)
    n = np.shape(v)[0] + abs(k)
    rows = np.arange(np.shape(v)[0]) + max(-k, 0)
    return scatter(v, (rows, rows - max(-k, 0) + max(k, 0)), (n, n), v.dtype)


@rule(np.triu)
def triu(y: Any, x: Any, k: int = 0) -> Any:
    return [lambda g: np.triu(g, k)], [lambda t: np.triu(t, k)]


@rule(np.tril)
def tril(y: Any, x: Any, k: int = 0) -> Any:
    return [lambda g: np.tril(g, k)], [lambda t: np.tril(t, k)]


@composed(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    real_only(np.sort, a)
    if axis is None:
        a, axis = np.ravel(a), -1
    return np.take_along_axis(a, np.argsort(a, axis=axis, kind=kind, stable=stable), axis)


@composed(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: Any = "linear",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    if method != "linear" or overwrite_input:
        raise refuse(
            f"np.quantile with method={method!r} and overwrite_input={overwrite_input} has no derivative rule",
            "method='linear' and overwrite_input=False have one",
        )
    ndim = np.ndim(a)
    axes = tuple(range(ndim)) if axis is None else tuple([i % ndim for i in np.atleast_1d(axis).tolist()])
    kept = [n for i, n in enumerate(np.shape(a)) if i not in axes]
    rows = np.sort(np.reshape(np.moveaxis(a, axes, range(len(axes))), (-1, *kept)), axis=0)
    position = q * (len(rows) - 1.0)
    below = np.clip(np.floor(plain(position)).astype(int), 0, max(len(rows) - 2, 0))
    above = np.minimum(below + 1, len(rows) - 1)
    part = np.reshape(position - below, np.shape(below) + (1,) * len(kept))
    value = np.take(rows, below, axis=0) * (1 - part) + np.take(rows, above, axis=0) * part
    if not keepdims:
        return value
    return np.reshape(value, (*np.shape(below), *[1 if i in axes else n for i, n in enumerate(np.shape(a))]))


@composed(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: Any = "linear",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    q = q / 100 if not isinstance(q, list | tuple) else np.asarray(q) / 100
    return quantile(a, q, axis, out, overwrite_input, method, keepdims)


@composed(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    return quantile(a, 0.5, axis, out, overwrite_input, keepdims=keepdims)
