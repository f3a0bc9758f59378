"""Functions that write into an array they are given, and ``np.insert``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..construct import listed
from ..kinds import refuse_out
from ..table import composed
from ..traced import Traced, plain


def _target(func: Any, array: Any) -> None:
    if not isinstance(array, Traced):
        raise refuse_out(func)


def _cycled(values: Any, count: int) -> Any:
    """``values`` over and over until there are ``count``, as NumPy fills."""
    values = np.ravel(listed(values))
    size = np.size(plain(values))
    return values if size in (1, count) else np.take(values, np.arange(count) % size)


@composed(np.copyto, exact=True)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    _target(np.copyto, dst)
    src = listed(src)
    if np.result_type(plain(src)).kind == "c" and dst.dtype.kind != "c":
        raise TypeError(f"Cannot cast array data from complex numbers to {dst.dtype}")
    if where is True:
        dst[...] = src
    else:
        dst[...] = np.where(np.broadcast_to(plain(where), dst.shape), src, dst)


@composed(np.fill_diagonal, exact=True)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    _target(np.fill_diagonal, a)
    marks = np.zeros(a.shape, bool)
    np.fill_diagonal(marks, True, wrap)
    places = np.nonzero(marks)
    a[places] = _cycled(val, len(places[0])) if np.ndim(plain(listed(val))) else val


def _within(ind: Any, size: int, mode: str) -> Any:
    if mode == "wrap":
        return ind % size
    return np.clip(ind, 0, size - 1) if mode == "clip" else np.where(ind < 0, ind + size, ind)


@composed(np.put, exact=True)
def put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    _target(np.put, a)
    ind = np.ravel(plain(ind))
    a[np.unravel_index(_within(ind, a.size, mode), a.shape)] = _cycled(v, ind.size)


@composed(np.putmask, exact=True)
def putmask(a: Any, mask: Any, values: Any) -> None:
    _target(np.putmask, a)
    mask = np.asarray(plain(mask), bool)
    values = listed(values)
    a[mask] = np.reshape(_cycled(values, a.size), a.shape)[mask] if np.size(plain(values)) > 1 else values


@composed(np.place, exact=True)
def place(arr: Any, mask: Any, vals: Any) -> None:
    _target(np.place, arr)
    mask = np.asarray(plain(mask), bool)
    vals, count = np.ravel(listed(vals)), int(np.count_nonzero(mask))
    if count:
        arr[mask] = np.take(vals, np.arange(count) % np.size(plain(vals)))


@composed(np.put_along_axis, exact=True)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    _target(np.put_along_axis, arr)
    indices = np.asarray(plain(indices))
    if axis is None:
        arr[np.unravel_index(np.ravel(indices), arr.shape)] = values
        return
    where = list(np.ix_(*[np.arange(n) for n in indices.shape]))
    for i, n in enumerate(arr.shape):
        if i != axis % arr.ndim and indices.shape[i] == 1:
            where[i] = np.reshape(np.arange(n), [-1 if k == i else 1 for k in range(arr.ndim)])
    where[axis % arr.ndim] = indices
    arr[tuple(where)] = values


@composed(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """Numbers that say where each element comes from are inserted, and the elements taken from there."""
    arr, values = listed(arr), listed(values)
    size = np.size(plain(arr))
    numbers = np.reshape(np.arange(size), np.shape(arr))
    others = np.reshape(np.arange(np.size(plain(values))), np.shape(values)) + size
    return np.take(np.concatenate([np.ravel(arr), np.ravel(values)]), np.insert(numbers, obj, others, axis))
