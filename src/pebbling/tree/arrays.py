"""NumPy arrays as leaves, and the order in memory that all kinds share.

An array comes back with its axes in the same order in memory, because sums over it may round
differently in another. A view with gaps comes back without them; a memory map comes back as an
array in memory.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .data import Unreadable
from .dtypes import checked, from_description, size

_DESCRIBED_BY_TEXT = frozenset("?biufcSUmM")
_PADDED_FLOAT = {"g": 10, "G": 10} if np.finfo(np.longdouble).nmant == 63 else {}


class Form(NamedTuple):
    """What the bytes of an array are, for those who look inside."""

    dtype: np.dtype | None
    """A type of numbers that every program knows, if it is one."""
    shape: tuple[int, ...]
    """With the axes as they lie in memory."""
    word: int
    """Bytes of one number; of one part where it is complex."""
    fraction: int | None
    """Bits behind the binary point that a number stores; ``None`` if it is not a float."""


class NumPy:
    """``numpy.ndarray`` of any dtype but ``object``."""

    name = "numpy"

    def plain(self, leaf: np.ndarray) -> bool:
        dtype = leaf.dtype
        return not dtype.hasobject and dtype.itemsize > 0

    def copy(self, leaf: np.ndarray) -> np.ndarray:
        if leaf.flags.c_contiguous:
            return np.array(leaf, copy=True, order="C")
        array, order = dense(leaf)
        private = np.array(array, copy=True, order="C") if np.may_share_memory(array, leaf) else array
        return private if order is None else private.transpose(inverse(order))

    def nbytes(self, leaf: np.ndarray) -> int:
        return leaf.nbytes

    def pack(self, leaf: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
        array, order = dense(leaf)
        dtype = array.dtype
        return (describe(dtype), array.shape, order), array.reshape(-1).view(np.uint8)

    def make(self, spec: tuple[Any, ...]) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
        dtype, shape, order = spec
        array = np.empty(shape, dtype)
        return array.reshape(-1).view(np.uint8), lambda: array if order is None else array.transpose(inverse(order))

    def size(self, spec: tuple[Any, ...]) -> int:
        dtype, shape, order = parts(spec, 3)
        checked(shape, order)
        return size(as_dtype(dtype), shape)

    def form(self, spec: tuple[Any, ...]) -> Form:
        return form(np.dtype(spec[0]), spec[1])


def parts(spec: Any, count: int) -> tuple[Any, ...]:
    """What describes an array, which was read from a file."""
    if not isinstance(spec, tuple) or len(spec) != count:
        raise Unreadable(f"{spec!r} describes no array")
    return spec


def as_dtype(found: Any) -> np.dtype:
    """A dtype that was read, as text or as one that was checked already."""
    return found if isinstance(found, np.dtype) else from_description(found)


def form(dtype: np.dtype, shape: tuple[int, ...]) -> Form:
    """The form of an array of that dtype."""
    word = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if dtype.kind in "fc":
        fraction = None if dtype.char in _PADDED_FLOAT else int(np.finfo(dtype).nmant)
    else:
        small: Any = sys.modules.get("ml_dtypes")
        is_float = small is not None and dtype.kind == "V" and dtype.names is None and dtype.type is not np.void
        fraction = _small_fraction(small, dtype) if is_float else None
    return Form(dtype if dtype.kind in "biufc" and dtype.char not in _PADDED_FLOAT else None, shape, word, fraction)


def dense(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...] | None]:
    """The array with its axes as they lie in memory, C-contiguous, and that order of the axes."""
    if array.flags.c_contiguous:
        return array, None
    order = memory_order(array.shape, array.strides)
    turned = np.ascontiguousarray(array.transpose(order))
    back = turned.transpose(inverse(order))
    return (back, None) if back.flags.c_contiguous else (turned, order)


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes from the slowest to the fastest; those of length 1, whose stride means nothing, come first."""
    return tuple(sorted(range(len(shape)), key=lambda axis: -abs(strides[axis]) if shape[axis] > 1 else -math.inf))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def describe(dtype: np.dtype) -> str | np.dtype:
    """A dtype as text where that says all of it: text is written far faster."""
    return dtype.str if dtype.kind in _DESCRIBED_BY_TEXT and dtype.metadata is None else dtype


def unpadded(array: np.ndarray) -> Iterator[np.ndarray]:
    """The parts of a contiguous array that carry values: all of it, but for padding between fields."""
    dtype = array.dtype
    if dtype.names is not None and _padded(dtype):
        for name in dtype.names:
            yield from unpadded(np.ascontiguousarray(array[name]))
    elif dtype.char in _PADDED_FLOAT:
        raw = array.reshape(-1).view(np.uint8).reshape(-1, np.dtype("g").itemsize)
        yield np.ascontiguousarray(raw[:, : _PADDED_FLOAT[dtype.char]])
    else:
        yield array


def _small_fraction(small: Any, dtype: np.dtype) -> int | None:
    try:
        return int(small.finfo(dtype).nmant)
    except ValueError:
        return None


def _padded(dtype: np.dtype) -> bool:
    if dtype.subdtype is not None:
        return _padded(dtype.subdtype[0])
    if dtype.names is None:
        return dtype.char in _PADDED_FLOAT
    fields = [dtype[name] for name in dtype.names]
    return sum(field.itemsize for field in fields) != dtype.itemsize or any(map(_padded, fields))
