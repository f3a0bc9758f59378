"""Less common functions, all of them formulas of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..table import composed, real_only
from ..traced import plain


@composed(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.prod(np.where(np.isnan(a), 1, a), axis=axis, dtype=dtype, keepdims=keepdims)


@composed(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    real_only(np.nanvar, a)
    missing = np.isnan(a)
    mean = np.nansum(a, axis=axis, keepdims=True) / np.sum(~missing, axis=axis, keepdims=True)
    away = np.square(np.where(missing, 0, a - mean))
    return np.sum(away, axis=axis, keepdims=keepdims) / (np.sum(~missing, axis=axis, keepdims=keepdims) - ddof)


@composed(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    return np.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims))


@composed(np.cov)
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    real_only(np.cov, m)
    parts = [np.atleast_2d(part) for part in (m, y) if part is not None]
    rows = np.concatenate([part if rowvar or np.shape(part)[0] == 1 else np.transpose(part) for part in parts])
    away = rows - np.mean(rows, axis=1, keepdims=True)
    freedom = np.shape(rows)[1] - (ddof if ddof is not None else 0 if bias else 1)
    result = away @ np.transpose(away) / freedom
    return np.reshape(result, ()) if np.shape(result) == (1, 1) else result


@composed(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    c = np.atleast_2d(cov(x, y, rowvar))
    spread = np.sqrt(np.diagonal(c))
    result = c / spread[:, None] / spread[None, :]
    return np.reshape(result, ()) if np.shape(result) == (1, 1) else result


@composed(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    y = np.zeros_like(x)
    for coefficient in p:
        y = y * x + coefficient
    return y


@composed(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    n = len(x) if N is None else N
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    return np.stack([x**p for p in powers.tolist()], axis=1)


@composed(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    if axis is None:
        arr, axis = np.ravel(arr), 0
    return np.take(arr, np.delete(np.arange(np.shape(arr)[axis]), obj), axis=axis)


@composed(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take(a, np.nonzero(plain(condition))[0], axis=axis)


@composed(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return np.take(np.ravel(arr), np.nonzero(np.ravel(plain(condition)))[0])


@composed(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    ndim = np.ndim(x)
    axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([a % ndim for a in axes])
    kept = [n for i, n in enumerate(np.shape(x)) if i not in axes]
    result = np.linalg.norm(np.reshape(np.moveaxis(x, axes, range(len(axes))), (-1, *kept)), ord, axis=0)
    return np.expand_dims(result, axes) if keepdims else result


@composed(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return np.linalg.norm(x, ord, axis=(-2, -1), keepdims=keepdims)


def _same(func: Any, as_func: Any, **fixed: Any) -> None:
    """``func`` is another name for ``as_func``."""

    @composed(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return as_func(*args, **fixed, **kwargs)


_same(np.linalg.matmul, np.matmul)
_same(np.linalg.outer, np.outer)
_same(np.linalg.tensordot, np.tensordot)
_same(np.linalg.matrix_transpose, np.matrix_transpose)
_same(np.linalg.cross, np.cross)
_same(np.linalg.vecdot, np.vecdot)
_same(np.linalg.trace, np.trace, axis1=-2, axis2=-1)

if hasattr(np, "cumulative_sum"):  # NumPy 2.1 on

    @composed(np.cumulative_sum)
    def cumulative_sum(x: Any, /, *, axis: Any = None, include_initial: bool = False) -> Any:
        along = 0 if axis is None else axis
        sums = np.cumsum(x, axis=along)
        if not include_initial:
            return sums
        shape = [1 if i == along % np.ndim(x) else n for i, n in enumerate(np.shape(x))]
        return np.concatenate([np.zeros(shape), sums], along)

    @composed(np.unstack, exact=True)
    def unstack(x: Any, /, *, axis: int = 0) -> Any:
        return tuple(np.moveaxis(x, axis, 0))
