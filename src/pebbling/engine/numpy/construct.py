"""``np.array`` and its kin for traced arrays and for nested lists that hold some."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from .refuse import refuse
from .traced import Traced, highest, is_array, plain

_array = np.array
_LISTS = (list, tuple, deque)


def array(tree: Any, dtype: Any = None, *, copy: bool | None = True, order: Any = "K", ndmin: int = 0) -> Any:
    """An array of a traced array, or of nested lists of traced and plain numbers and arrays."""
    result: Any = tree
    if isinstance(tree, Traced) and tree.blank:
        tree = tree.value
    if holds_traced(tree):
        result = _joined(tree, dtype)
    elif not isinstance(tree, Traced):
        result = _array(tree, dtype)
    elif copy or not is_array(tree):
        result = np.copy(result, order="K" if order is None else order)
    elif order in ("C", "F") and not plain(tree).flags["C" if order == "C" else "F"]:
        result = np.copy(result, order)
    if dtype is not None and np.dtype(dtype) != result.dtype:
        result = result.astype(dtype)
    return np.reshape(result, (1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


def asarray(tree: Any, dtype: Any = None) -> Any:
    """``np.asarray`` likewise: a traced array stays what it is."""
    if isinstance(tree, Traced) and (dtype is None or np.dtype(dtype) == tree.dtype):
        return tree
    return array(tree, dtype)


def holds_traced(tree: Any) -> bool:
    """Whether a list or tuple has a traced value somewhere inside."""
    if not isinstance(tree, _LISTS):
        return False
    for part in tree:
        kind = type(part)
        if kind is float or kind is int:
            continue
        if isinstance(part, Traced) or (isinstance(part, _LISTS) and holds_traced(part)):
            return True
    return False


def listed(value: Any) -> Any:
    """``value``, or the array that a list with traced elements stands for."""
    return array(value) if isinstance(value, _LISTS) and holds_traced(value) else value


def _joined(tree: Any, dtype: Any) -> Any:
    """One primitive for all the traced elements, each of which knows its place in the result."""
    leaves: list[Any] = []
    places: list[Any] = []

    def walk(part: Any, place: tuple[int, ...]) -> Any:
        if isinstance(part, Traced) and part.blank:
            return part.value
        if isinstance(part, Traced):
            leaves.append(part)
            places.append(place)
            return plain(part)
        return [walk(item, (*place, i)) for i, item in enumerate(part)] if isinstance(part, _LISTS) else part

    value = _array(walk(tree, ()), None if dtype is None or np.dtype(dtype).kind not in "fc" else dtype)
    if not leaves:
        return value
    top = highest(leaves)
    if top is None or value.dtype == object:
        raise refuse("an array of Python objects that are traced has no derivative", "Keep them in a list")
    from .rules.create import joined

    return joined(*leaves, value=value, places=tuple(places))


def from_iterable(values: Iterable[Any], dtype: Any, count: int = -1, **kwargs: Any) -> Any:
    """``np.fromiter`` of numbers of which some may be traced."""
    items = list(values) if count < 0 else [item for item, _ in zip(values, range(count))]
    return array(items, dtype) if holds_traced(items) else np.fromiter(items, dtype, count, **kwargs)
