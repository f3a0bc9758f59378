"""Indexing: taking parts, putting parts, and their pullbacks, which touch nothing but the part.

``x[index]`` adds its cotangent into one dense array that all uses of ``x`` share, so that a loop over the
rows of a large array costs its rows, not a dense array each.
"""

from __future__ import annotations

import math
import operator
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from .hold import ArrayLock, hold, keep
from .table import primitive
from .tape import ONLY_HERE, accumulate, fit, is_own
from .traced import Traced, plain


def freeze(held: dict[int, ArrayLock] | None, index: Any) -> Any:
    """An index that stays what it is, and means to NumPy what ``index`` means now.

    What NumPy takes for an integer becomes one, what it takes for an array becomes one (``x[range(2)]``,
    ``x[:, (0, 2)]``), small arrays are copied, and large ones can't be written to until the tape is done
    (``held`` is the tape's; ``None`` copies them).
    """
    kind = type(index)
    if kind is int or (kind is slice and _is_fixed(index)):
        return index
    if kind is tuple and all(type(item) in _FIXED or (type(item) is slice and _is_fixed(item)) for item in index):
        return index
    if isinstance(index, tuple):
        return tuple([_frozen_item(held, item) for item in index])
    return _frozen_item(held, index)


_FIXED = frozenset({int, type(None), type(Ellipsis)})


def _is_fixed(item: slice) -> bool:
    return type(item.start) in _FIXED and type(item.stop) in _FIXED and type(item.step) in _FIXED


def _frozen_item(held: dict[int, ArrayLock] | None, item: Any) -> Any:
    kind = type(item)
    if kind in _FIXED:
        return item
    if kind is slice:
        ends = (item.start, item.stop, item.step)
        return slice(*[end if end is None else operator.index(end) for end in ends])
    if isinstance(item, ndarray):
        if item.flags.c_contiguous:
            return item.copy() if held is None else keep(held, item)
        if held is not None:  # how it lies in memory decides which of several writes to one element is the last
            hold(held, item)
        return item
    if kind is not bool and kind is not np.bool_ and hasattr(item, "__index__"):
        return operator.index(item)
    array = np.array(item)
    return array.astype(np.intp) if array.size == 0 else array


def repeats(index: Any) -> bool:
    """Whether a frozen index could name an element twice."""
    items = index if type(index) is tuple else (index,)
    return any(isinstance(item, ndarray) and item.ndim > 0 and item.dtype.kind != "b" for item in items)


def is_basic(index: Any) -> bool:
    """Whether a frozen index takes a view: numbers, slices, ``...`` and ``None``."""
    if type(index) is int or type(index) is slice:
        return True
    items = index if type(index) is tuple else (index,)
    return not any(isinstance(item, ndarray) for item in items)


def _scatter(part: Any, index: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    whole = np.zeros(shape, dtype)
    if repeats(index):
        np.add.at(whole, index, part)
    else:
        whole[index] = part
    return whole


def _put(x: Any, part: Any, index: Any, last: Any = None) -> Any:
    new = np.copy(x)
    if last is None:
        new[index] = part
    else:
        new[index] = 0
        np.add.at(new, index, np.where(last, part, 0))
    return new


@primitive(_scatter)
def scatter(y: Any, part: Any, index: Any, shape: Any, dtype: Any) -> Any:
    """Zeros with ``part`` added at ``index``: the transpose of ``x[index]``."""
    return [lambda g: g[index]], [lambda t: scatter(t, index, shape, dtype)]


@primitive(_put, arrays=slice(2))
def put(y: Any, x: Any, part: Any, index: Any, last: Any = None) -> Any:
    """``x`` with ``part`` at ``index``; ``last`` says which elements count where an index names one twice."""
    shape, dtype = np.shape(x), y.dtype
    last = lasts(index, shape, part) if last is None else last
    return (
        [lambda g: put(g, 0, index), lambda g: written(g, index, last)],
        [lambda t: put(t, 0, index), lambda t: put(np.zeros(shape, dtype), t, index, last)],
    )


def written(g: Any, index: Any, last: Any) -> Any:
    """The cotangent of what was put at ``index``; where an index names an element twice, only one counts."""
    part = g[index]
    return part if last is None else part * last


def lasts(index: Any, shape: tuple[int, ...], part: Any) -> np.ndarray | None:
    """Which elements are still there after ``part`` was written at ``index``; ``None`` if all are.

    NumPy writes them in an order that depends on how ``part`` lies in memory, so numbers that lie
    in the same way are written to see which of them stay.
    """
    if not repeats(index):
        return None
    part = np.asarray(plain(part))
    space = np.broadcast_to(np.empty((), np.intp), shape)[index].shape
    count = math.prod(space)
    order = np.arange(count).reshape(space)
    if part.ndim < 2:
        numbers = order if part.shape == space else np.broadcast_to(order, space)
    else:
        numbers = _like_in_memory(order, part)
    winner = np.empty(shape, numbers.dtype)
    winner[index] = numbers
    last = np.asarray(winner[index] == numbers)
    return None if last.all() else last


def _like_in_memory(numbers: np.ndarray, part: np.ndarray) -> np.ndarray:
    """``numbers`` with the order and the size of elements of ``part``, as far as it is not broadcast."""
    lead = part.ndim - numbers.ndim
    strides = part.strides[lead:] if lead >= 0 else (0,) * -lead + part.strides
    axes = sorted(range(numbers.ndim), key=lambda axis: -abs(strides[axis]))
    dtype = {16: np.dtype(complex), 4: np.dtype(np.int32)}.get(part.dtype.itemsize, np.dtype(np.int64))
    laid = np.empty([numbers.shape[axis] for axis in axes], dtype)
    new = laid.transpose(np.argsort(axes))
    new = new[tuple([slice(None, None, -1) if stride < 0 else slice(None) for stride in strides])]
    new[...] = numbers
    return new


def pull_getitem(grads: list[Any], entry: Any) -> None:
    """``y = x[index]``: (pull, x, index, shape of x, dtype of x)."""
    _, i, index, shape, dtype = entry
    if isinstance(grads[-1], Traced) or isinstance(grads[i], Traced):
        alone = getrefcount(grads[i]) == ONLY_HERE and hasattr(grads[i], "add_at")
        if not (alone and grads[i].add_at(index, grads[-1])):
            accumulate(grads, i, scatter(grads[-1], index, shape, dtype))
        return
    if grads[i] is None:
        grads[i] = np.zeros(shape, dtype)
    elif not is_own(grads, i):
        grads[i] = np.array(grads[i])
    add_at(grads[i], index, grads[-1])


def pull_element(grads: list[Any], entry: Any) -> None:
    """``y = x[index]``, a number: the same."""
    _, i, index, shape, dtype = entry
    if isinstance(grads[-1], Traced) or not (grads[i] is None or is_own(grads, i)):
        pull_getitem(grads, entry)
        return
    if grads[i] is None:
        grads[i] = np.zeros(shape, dtype)
    grads[i][index] += grads[-1]


def add_at(whole: Any, index: Any, part: Any) -> None:
    """``whole[index] += part``, every repeated element counted."""
    if type(part) is ndarray and part.ndim and is_basic(index):
        view = whole[index]
        np.add(view, part, view)
    elif repeats(index):
        np.add.at(whole, index, part)
    else:
        whole[index] += part


def pull_write(grads: list[Any], entry: Any) -> None:
    """``x[index] = v``: (pull, x, v or None, index, last, shape of v, dtype of v)."""
    _, i, j, index, last, shape, dtype = entry
    if j is not None:
        part = fit(written(grads[-1], index, last), shape, dtype)
        if isinstance(part, ndarray) and part.base is not None:
            part = np.array(part)  # before zeros are written into what it looks into
        accumulate(grads, j, part)
    if is_own(grads, -1):
        grads[-1][index] = 0
        accumulate(grads, i, grads[-1])
    else:
        accumulate(grads, i, put(grads[-1], 0, index))
