"""Indexing: taking parts, putting parts, and their pullbacks, which touch nothing but the part.

``x[index]`` adds its cotangent into one dense array that all uses of ``x`` share, so that a loop over the
rows of a large array costs its rows, not a dense array each.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from .hold import Lock, hold
from .table import primitive
from .tape import ONLY_HERE, accumulate, fit, is_own
from .traced import Traced


def freeze(held: dict[int, Lock], index: Any) -> Any:
    """An index that stays what it is: lists become arrays, and arrays can't be written to until the tape is done."""
    if type(index) is tuple:
        return tuple([freeze(held, item) for item in index])
    if type(index) is list:
        return np.array(index)
    if isinstance(index, ndarray):
        hold(held, index)
    return index


def repeats(index: Any) -> bool:
    """Whether an index could name an element twice."""
    items = index if type(index) is tuple else (index,)
    return any(isinstance(item, ndarray | list) and np.asarray(item).dtype != bool for item in items)


def is_basic(index: Any) -> bool:
    """Whether an index takes a view: numbers, slices, ``...`` and ``None``."""
    if type(index) is int or type(index) is slice:
        return True
    items = index if type(index) is tuple else (index,)
    return not any(isinstance(item, ndarray | list | bool | np.bool_) for item in items)


def _scatter(part: Any, index: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    whole = np.zeros(shape, dtype)
    if repeats(index):
        np.add.at(whole, index, part)
    else:
        whole[index] = part
    return whole


def _put(x: Any, part: Any, index: Any) -> Any:
    new = np.copy(x)
    new[index] = part
    return new


@primitive(_scatter)
def scatter(y: Any, part: Any, index: Any, shape: Any, dtype: Any) -> Any:
    """Zeros with ``part`` added at ``index``: the transpose of ``x[index]``."""
    return [lambda g: g[index]], [lambda t: scatter(t, index, shape, dtype)]


@primitive(_put, arrays=slice(2))
def put(y: Any, x: Any, part: Any, index: Any) -> Any:
    """``x`` with ``part`` at ``index``."""
    shape, dtype = np.shape(x), y.dtype
    return (
        [lambda g: put(g, 0, index), lambda g: written(g, index)],
        [lambda t: put(t, 0, index), lambda t: put(np.zeros(shape, dtype), t, index)],
    )


def written(g: Any, index: Any) -> Any:
    """The cotangent of what was put at ``index``; where an index names an element twice, the last one counts."""
    part = g[index]
    return part * lasts(index, np.shape(g)) if repeats(index) else part


def lasts(index: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Which of the elements written at ``index`` are still there after the writing."""
    winner = np.empty(shape, int)
    order = np.arange(np.size(np.zeros(shape, bool)[index])).reshape(np.shape(np.zeros(shape, bool)[index]))
    winner[index] = order
    return winner[index] == order


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
    """``x[index] = v``: (pull, x, v or None, index, shape of v, dtype of v)."""
    _, i, j, index, shape, dtype = entry
    if j is not None:
        part = fit(written(grads[-1], index), shape, dtype)
        if isinstance(part, ndarray) and part.base is not None:
            part = np.array(part)  # before zeros are written into what it looks into
        accumulate(grads, j, part)
    if is_own(grads, -1):
        grads[-1][index] = 0
        accumulate(grads, i, grads[-1])
    else:
        accumulate(grads, i, put(grads[-1], 0, index))
