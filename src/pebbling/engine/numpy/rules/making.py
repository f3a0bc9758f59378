"""Arrays made from traced values, and functions of lists of them: what NumPy does not hand over by itself."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ..construct import array, from_iterable, holds_traced, listed
from ..kinds import map_tree
from ..refuse import refuse
from ..standins import of_a_library, stand_in
from ..traced import Traced, highest, plain


def _is_ours(tree: Any) -> bool:
    return isinstance(tree, Traced) or holds_traced(tree)


def _arguments(name: str, copy: bool | None) -> Any:
    """A stand-in for ``np.array`` or one of its kin, which differ in whether they copy."""
    original = getattr(np, name)

    def make(object: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(object, Traced) and object.blank and of_a_library(sys._getframe(1)):
            object = object.__array__()  # for compiled code
        if type(object) is np.ndarray or not _is_ours(object):
            return original(object, dtype, *args, **kwargs)
        given = dict(zip(("order",) if name != "array" else (), args)) | kwargs
        given.pop("subok", None)
        if given.pop("like", None) is not None:
            raise refuse(f"np.{name} with like= has no derivative rule", "Leave it out")
        given.setdefault("copy", copy)
        given["copy"] = _COPIES.get(given["copy"], given["copy"])
        if dtype is not None and np.dtype(dtype) == object_:
            raise refuse("an array of Python objects that are traced has no derivative", "Keep them in a list")
        return array(object, dtype, **given)

    return functools.wraps(original)(make)


object_ = np.dtype("O")
_COPIES = {np._CopyMode.IF_NEEDED: None, np._CopyMode.ALWAYS: True, np._CopyMode.NEVER: False}  # as SciPy says it

for name, copy in (("array", True), ("asarray", None), ("asanyarray", None)):
    stand_in(np, name, _arguments(name, copy))


def _contiguous(name: str, order: str) -> Any:
    original = getattr(np, name)

    def make(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return array(a, dtype, copy=None, order=order, ndmin=1) if _is_ours(a) else original(a, dtype, **kwargs)

    return functools.wraps(original)(make)


stand_in(np, "ascontiguousarray", _contiguous("ascontiguousarray", "C"))
stand_in(np, "asfortranarray", _contiguous("asfortranarray", "F"))


def _checked(a: Any, dtype: Any = None, order: Any = None) -> Any:
    if not _is_ours(a):
        return _CHECKED(a, dtype, order)
    a = array(a, dtype, copy=None)
    _CHECKED(plain(a))
    return a


_CHECKED = np.asarray_chkfinite
stand_in(np, "asarray_chkfinite", _checked)
_FROM_ITERABLE = np.fromiter


def _fromiter(iter: Any, dtype: Any, count: int = -1, **kwargs: Any) -> Any:
    return _FROM_ITERABLE(iter, dtype, count, **kwargs) if hasattr(iter, "dtype") else from_iterable(iter, dtype, count)


stand_in(np, "fromiter", _fromiter)
_FULL = np.full


def _full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    fill_value = listed(fill_value)
    if not isinstance(fill_value, Traced):
        return _FULL(shape, fill_value, dtype, **kwargs)
    value = _FULL(shape, plain(fill_value), dtype, **kwargs)
    if value.dtype.kind not in "fc":
        return value
    top: Any = highest((fill_value,))
    result = top.constant(value)
    result[...] = fill_value
    return result


stand_in(np, "full", _full)


class _Joiner:
    """``np.r_`` and ``np.c_``: whatever stands in the brackets, joined."""

    def __init__(self, name: str) -> None:
        self._original = getattr(np, name)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __len__(self) -> int:
        return len(self._original)

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if not any(map(_is_ours, items)):
            return self._original[key]
        if any(isinstance(item, str) for item in items):
            raise refuse(f"np.{self._name} with a string has no derivative rule", "Use np.concatenate or np.stack")
        value = self._original[map_tree(plain, items)]  # which dtype and shape it has
        parts = [listed(item) if _is_ours(item) else _plain(item) for item in items]
        if self._name == "c_":
            parts = [np.reshape(part, (*np.shape(part), *(1,) * (2 - np.ndim(part)))) for part in parts]
        else:
            parts = [np.reshape(part, (1,) * (value.ndim - np.ndim(part)) + np.shape(part)) for part in parts]
        result = np.concatenate(parts, -1 if self._name == "c_" else 0)
        return result if result.dtype == value.dtype else result.astype(value.dtype)


def _plain(item: Any) -> Any:
    return np.r_[item] if isinstance(item, slice) else np.asarray(item)


for name in ("r_", "c_"):
    stand_in(np, name, _Joiner(name))
