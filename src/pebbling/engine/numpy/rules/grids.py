"""Grids, windows that slide, functions along an axis, sums of pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..construct import array
from ..indexing import scatter
from ..refuse import refuse
from ..standins import stand_in
from ..table import composed, primitive, real_only, rule
from ..traced import Traced, plain

stride_tricks = np.lib.stride_tricks


@composed(np.logspace)
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    return np.power(base, np.linspace(start, stop, num, endpoint=endpoint, axis=axis))


@composed(np.geomspace)
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    real_only(np.geomspace, start, stop)
    sign = np.sign(plain(start))
    logs = np.linspace(np.log(start * sign), np.log(stop * sign), num, endpoint=endpoint, axis=axis)
    return sign * np.exp(logs)


@rule(stride_tricks.sliding_window_view)
def sliding_window_view(
    y: Any, x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    shape, dtype = np.shape(x), y.dtype
    numbers = np.arange(math.prod(shape)).reshape(shape)
    at = (stride_tricks.sliding_window_view(numbers, window_shape, axis),)
    return (
        [lambda g: np.reshape(scatter(g, at, (math.prod(shape),), dtype), shape)],
        [lambda t: stride_tricks.sliding_window_view(t, window_shape, axis)],
    )


_AS_STRIDED = stride_tricks.as_strided


@primitive(lambda x, shape, strides: _AS_STRIDED(x, shape, strides).copy())
def strided(y: Any, x: Any, shape: Any, strides: Any) -> Any:
    """For arrays whose elements lie one after the other."""
    if not plain(x).flags.c_contiguous:
        raise refuse("as_strided of an array that is not contiguous has no derivative rule", "Copy it before")
    before, dtype = np.shape(x), y.dtype
    numbers = np.arange(math.prod(before)).reshape(before)
    at = (_AS_STRIDED(numbers, shape, _of_integers(x, strides)).copy(),)
    return (
        [lambda g: np.reshape(scatter(g, at, (math.prod(before),), dtype), before)],
        [lambda t: np.ravel(t)[at]],
    )


def _as_strided(x: Any, shape: Any = None, strides: Any = None, **kwargs: Any) -> Any:
    return strided(x, shape, strides) if isinstance(x, Traced) else _AS_STRIDED(x, shape, strides, **kwargs)


stand_in(stride_tricks, "as_strided", _as_strided)


def _of_integers(x: Any, strides: Any) -> Any:
    return None if strides is None else [s // x.dtype.itemsize * np.dtype(np.intp).itemsize for s in strides]


@composed(np.apply_along_axis, exact=True)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    axis %= np.ndim(arr)
    last = np.moveaxis(arr, axis, -1)
    outer = np.shape(last)[:-1]
    results = [func1d(last[i], *args, **kwargs) for i in np.ndindex(*outer)]
    inner = np.shape(results[0])
    whole = np.reshape(np.stack([array(r) for r in results]), (*outer, *inner))
    return np.moveaxis(whole, range(len(outer), len(outer) + len(inner)), range(axis, axis + len(inner)))


@composed(np.apply_over_axes, exact=True)
def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    for axis in np.atleast_1d(axes).tolist():
        result = func(a, axis % np.ndim(a))
        a = result if np.ndim(result) == np.ndim(a) else np.expand_dims(result, axis % np.ndim(a))
    return a


@rule(np.add.reduceat)
def add_reduceat(y: Any, x: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """A piece ends where the next begins; where that is not further on, the piece is one element."""
    size = np.shape(x)[axis]
    starts = np.asarray(plain(indices))
    ends = np.append(starts[1:], size)
    ends = np.where(ends <= starts, starts + 1, ends)
    inside = (np.arange(size) >= starts[:, None]) & (np.arange(size) < ends[:, None])
    axis %= np.ndim(x)

    def vjp(g: Any) -> Any:
        return np.moveaxis(np.tensordot(inside.astype(y.dtype), g, ([0], [axis])), 0, axis)

    return [vjp], [lambda t: np.add.reduceat(t, starts, axis)]


def _runs(method: Any, beats: Any) -> None:
    """``np.maximum.accumulate``: each element is one of the input, the last that beat all before it."""

    @composed(method)
    def accumulate(array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        x = plain(array)
        real_only(method, array)
        best = method(x, axis)
        numbers = np.reshape(np.arange(x.shape[axis]), [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
        before = np.roll(best, 1, axis)
        new = beats(x, before)
        new[(*[slice(None)] * (axis % x.ndim), 0)] = True
        return np.take_along_axis(array, np.maximum.accumulate(np.where(new, numbers, 0), axis), axis)


_runs(np.maximum.accumulate, np.greater)
_runs(np.minimum.accumulate, np.less)


@composed(np.logaddexp.accumulate)
def logaddexp_accumulate(array: Any, axis: int = 0) -> Any:
    rows = np.moveaxis(array, axis, 0)
    sums = [rows[0]]
    for i in range(1, len(rows)):
        sums.append(np.logaddexp(sums[-1], rows[i]))
    return np.moveaxis(np.stack(sums), 0, axis)


@composed(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    """Multiples of the period are added, which are constant where they do not jump."""
    value = plain(p)
    return p + (np.unwrap(value, discont, axis, period=plain(period)) - value)


@composed(np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> Any:
    return a if np.iscomplexobj(np.real_if_close(plain(a), tol)) else np.real(a)


@composed(np.diagflat, exact=True)
def diagflat(v: Any, k: int = 0) -> Any:
    return np.diag(np.ravel(v), k)


@composed(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    count = len(choices)
    a = plain(a) % count if mode == "wrap" else np.clip(plain(a), 0, count - 1) if mode == "clip" else plain(a)
    rows = np.stack(np.broadcast_arrays(*choices, np.zeros(np.shape(a)))[:-1])
    return np.take_along_axis(rows, np.broadcast_to(a, np.shape(rows)[1:])[None], 0)[0]


@rule(np.modf)
def modf(y: Any, x: Any) -> Any:
    return [lambda gs: np.zeros(np.shape(x)) if gs[0] is None else gs[0]], [lambda t: (t, None)]


@composed(np.divmod, exact=True)
def divmod(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y), np.remainder(x, y)


if hasattr(np, "cumulative_prod"):  # NumPy 2.1 on

    @composed(np.cumulative_prod)
    def cumulative_prod(x: Any, /, *, axis: Any = None, include_initial: bool = False) -> Any:
        along = 0 if axis is None else axis
        products = np.cumprod(x, axis=along)
        if not include_initial:
            return products
        shape = [1 if i == along % np.ndim(x) else n for i, n in enumerate(np.shape(x))]
        return np.concatenate([np.ones(shape), products], along)


if hasattr(np, "matvec"):  # NumPy 2.2 on

    @composed(np.matvec)
    def matvec(x1: Any, x2: Any) -> Any:
        return np.matmul(x1, np.expand_dims(x2, -1))[..., 0]

    @composed(np.vecmat)
    def vecmat(x1: Any, x2: Any) -> Any:
        return np.matmul(np.expand_dims(np.conjugate(x1), -2), x2)[..., 0, :]
