"""Order and counts: partitions, sets, medians that skip what is missing, histograms with traced weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..indexing import scatter
from ..refuse import refuse
from ..table import composed, flat, primitive, real_only
from ..traced import Traced, plain

flat(
    np.setdiff1d, np.histogram_bin_edges, np.linalg.matrix_rank, np.isclose, np.isscalar, np.iterable, np.nextafter,
    np.spacing, np.unravel_index, np.tril_indices_from, np.triu_indices_from, np.diag_indices_from, np.bitwise_and,
    np.unique_counts, np.unique_inverse, np.einsum_path, np.isfortran,
)  # fmt: skip


@composed(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    real_only(np.partition, a)
    if axis is None:
        a, axis = np.ravel(a), -1
    return np.take_along_axis(a, np.argpartition(plain(a), kth, axis, kind), axis)


_UNIQUE: Any = np.unique


@composed(np.unique)
def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Equal elements are one, and its derivative is that of the first."""
    found: Any = _UNIQUE(plain(ar), True, return_inverse, return_counts, axis, equal_nan=equal_nan)
    at = found[1]
    values = np.take(np.ravel(ar) if axis is None else ar, at, axis=0 if axis is None else axis)
    rest = found[1 if return_index else 2 :]
    return (values, *rest) if rest else values


@composed(np.unique_values)
def unique_values(x: Any) -> Any:
    values = np.unique_values(plain(x))
    elements = np.ravel(x)
    order = np.argsort(plain(elements), kind="stable")
    return np.take(elements, order[np.searchsorted(plain(elements)[order], values)])


@composed(np.trim_zeros, exact=True)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    if np.ndim(filt) != 1:
        raise refuse("np.trim_zeros of an array with several axes has no derivative rule", "Cut it with a slice")
    there = np.nonzero(plain(filt))[0]
    first = there[0] if len(there) and "f" in trim.lower() else 0
    last = there[-1] + 1 if len(there) and "b" in trim.lower() else len(filt)
    return filt[first:last] if len(there) else filt[:0]


@composed(np.resize, exact=True)
def resize(a: Any, new_shape: Any) -> Any:
    shape = (new_shape,) if isinstance(new_shape, int | np.integer) else tuple(new_shape)
    count = math.prod(shape)
    return np.reshape(np.take(np.ravel(a), np.arange(count) % np.size(plain(a))), shape)


def _without_missing(a: Any, axis: Any) -> Any:
    """Rows of numbers, sorted, the missing ones last, and how many are there."""
    real_only(np.nanquantile, a)
    ndim = np.ndim(a)
    axes = tuple(range(ndim)) if axis is None else tuple([i % ndim for i in np.atleast_1d(axis).tolist()])
    kept = [n for i, n in enumerate(np.shape(a)) if i not in axes]
    rows = np.sort(np.reshape(np.moveaxis(a, axes, range(len(axes))), (-1, *kept)), axis=0)
    return rows, np.count_nonzero(~np.isnan(plain(rows)), axis=0), axes


@composed(np.nanquantile)
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: Any = "linear",
    keepdims: Any = False,
) -> Any:  # fmt: skip
    if method != "linear" or overwrite_input:
        raise refuse(f"np.nanquantile with method={method!r} has no derivative rule", "method='linear' has one")
    rows, counts, axes = _without_missing(a, axis)
    parts = []
    for share in np.ravel(plain(q)):
        position = share * (np.maximum(counts, 1) - 1.0)
        below = np.clip(np.floor(position).astype(int), 0, np.maximum(counts - 2, 0))
        above = np.minimum(below + 1, np.maximum(counts - 1, 0))
        low = np.take_along_axis(rows, np.expand_dims(below, 0), 0)[0]
        high = np.take_along_axis(rows, np.expand_dims(above, 0), 0)[0]
        part = position - below
        value = np.where(part == 0, low, low + (high - low) * part)
        if keepdims is True:
            value = np.reshape(value, [1 if i in axes else n for i, n in enumerate(np.shape(a))])
        parts.append(value)
    if isinstance(q, Traced):
        raise refuse("np.nanquantile has no derivative in q", "Pass stop_gradient(q)")
    return parts[0] if np.ndim(q) == 0 else np.stack(parts)


@composed(np.nanpercentile)
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: Any = "linear",
    keepdims: Any = False,
) -> Any:  # fmt: skip
    return nanquantile(a, np.asarray(q) / 100, axis, out, overwrite_input, method, keepdims)


@composed(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    return nanquantile(a, 0.5, axis, out, overwrite_input, keepdims=keepdims)


@composed(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return np.cumsum(np.where(np.isnan(a), 0, a), axis=axis, dtype=dtype)


@composed(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return np.cumprod(np.where(np.isnan(a), 1, a), axis=axis, dtype=dtype)


@primitive(lambda weights, x, length: np.bincount(x, weights, length))
def weighed(y: Any, weights: Any, x: Any, length: Any) -> Any:
    size = len(y)
    return [lambda g: g[x]], [lambda t: scatter(t, (x,), (size,), y.dtype)]


@composed(np.bincount, exact=True)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    x = np.array(plain(x))
    if not isinstance(weights, Traced):
        return np.bincount(x, weights, minlength)
    return weighed(weights.astype(float), x, minlength)


@composed(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Weights have a derivative; where a value falls has none."""
    a, bins = plain(a), plain(bins)
    edges = np.histogram(a, bins, range)[1]
    if weights is None:
        return np.histogram(a, bins, range, density)
    flat_a = np.ravel(a)
    at = np.searchsorted(edges, flat_a, "right") - 1
    at = np.where(flat_a == edges[-1], len(edges) - 2, at)
    inside = (at >= 0) & (at < len(edges) - 1) & (flat_a <= edges[-1])
    counts = bincount(at[inside], np.ravel(weights)[inside], len(edges) - 1)
    return (counts / np.diff(edges) / np.sum(counts) if density else counts), edges
