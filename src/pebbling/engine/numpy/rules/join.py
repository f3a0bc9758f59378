"""Arrays joined and split."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..table import composed, primitive
from ..traced import Traced


def _join(*arrays: Any, axis: int) -> Any:
    return np.concatenate(arrays, axis)


@primitive(_join, arrays=slice(None))
def join(y: Any, *arrays: Any, axis: int) -> Any:
    """``np.concatenate`` of arrays given one by one."""
    ends = np.cumsum([np.shape(a)[axis] for a in arrays]).tolist()
    starts = [0, *ends[:-1]]
    shape, dtype = np.shape(y), y.dtype
    axis %= len(shape)

    def cut(start: int, end: int) -> Any:
        where = (*[slice(None)] * axis, slice(start, end))
        return lambda g: g[where]

    def fill(start: int, end: int) -> Any:
        def jvp(t: Any) -> Any:
            before = (*shape[:axis], start, *shape[axis + 1 :])
            after = (*shape[:axis], shape[axis] - end, *shape[axis + 1 :])
            return np.concatenate([np.zeros(before, dtype), t, np.zeros(after, dtype)], axis)

        return jvp

    spans = list(zip(starts, ends))
    return [cut(*span) for span in spans], [fill(*span) for span in spans]


@composed(np.concatenate, exact=True)
def concatenate(arrays: Any, axis: Any = 0, out: Any = None) -> Any:
    if axis is None:
        arrays, axis = [np.ravel(a) for a in arrays], 0
    return join(*[a if isinstance(a, Traced) else np.asarray(a) for a in arrays], axis=axis)


@composed(np.stack, exact=True)
def stack(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    return np.concatenate([np.expand_dims(a, axis) for a in arrays], axis)


def _cast(joined: Any, dtype: Any) -> Any:
    return joined if dtype is None else joined.astype(dtype)


@composed(np.vstack, exact=True)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return _cast(np.concatenate([np.atleast_2d(a) for a in tup], 0), dtype)


@composed(np.hstack, exact=True)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = [np.atleast_1d(a) for a in tup]
    return _cast(np.concatenate(arrays, 0 if arrays and np.ndim(arrays[0]) == 1 else 1), dtype)


@composed(np.dstack, exact=True)
def dstack(tup: Any) -> Any:
    return np.concatenate([np.atleast_3d(a) for a in tup], 2)


@composed(np.column_stack, exact=True)
def column_stack(tup: Any) -> Any:
    return np.concatenate([np.reshape(a, (-1, 1)) if np.ndim(a) < 2 else a for a in tup], 1)


@composed(np.append, exact=True)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    return np.concatenate([np.ravel(arr), np.ravel(values)], 0) if axis is None else np.concatenate((arr, values), axis)


@composed(np.block, exact=True)
def block(arrays: Any) -> Any:
    depth, inner = 0, arrays
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    most = max(depth, _most_dimensions(arrays))
    return _block(arrays, depth, most)


def _most_dimensions(arrays: Any) -> int:
    return max(_most_dimensions(a) for a in arrays) if isinstance(arrays, list) else int(np.ndim(arrays))


def _block(arrays: Any, depth: int, ndim: int) -> Any:
    if not isinstance(arrays, list):
        return np.reshape(arrays, (1,) * (ndim - np.ndim(arrays)) + np.shape(arrays))
    return np.concatenate([_block(a, depth - 1, ndim) for a in arrays], -depth)


@composed(np.array_split, exact=True)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    size = np.shape(ary)[axis]
    if np.ndim(indices_or_sections) == 0:
        n = int(indices_or_sections)
        cuts = [k * (size // n) + min(k, size % n) for k in range(n + 1)]
    else:
        cuts = [0, *[int(i) for i in indices_or_sections], size]
    lead = [slice(None)] * (axis % np.ndim(ary))
    return [ary[(*lead, slice(a, b))] for a, b in pairwise(cuts)]


@composed(np.split, exact=True)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if np.ndim(indices_or_sections) == 0 and np.shape(ary)[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return np.array_split(ary, indices_or_sections, axis)


@composed(np.hsplit, exact=True)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 1 if np.ndim(ary) > 1 else 0)


@composed(np.vsplit, exact=True)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 0)


@composed(np.dsplit, exact=True)
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 2)
