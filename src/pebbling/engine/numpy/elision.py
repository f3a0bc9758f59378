"""Which product NumPy computes where an expression says ``w * (z * u)``: the one with its operands swapped.

An array of 256 KiB and more that only the interpreter refers to is a temporary. NumPy computes the next
operation in its memory, and if the temporary stands on the right of a product, it computes ``temporary * w``
("temporary elision", numpy/_core/src/multiarray/temp_elide.c). Real products don't care. Complex ones do:
with fused multiply-add, ``a * b`` and ``b * a`` differ in the last bit. A traced value is evaluated in the
same order, so that it has the bits of the plain program::

    w * np.fft.fft(z)        # np.fft.fft(z) * w, from 16384 elements on
    f = np.fft.fft(z)
    w * f                    # as it stands there

Whether a traced value is a temporary is told by its reference count, as NumPy tells it of arrays. How many
references the call itself makes depends on the version of Python, and is measured when this is imported.
"""

from __future__ import annotations

from sys import _getframe, getrefcount
from typing import Any

import numpy as np

from .traced import plain

LARGE = 256 * 1024
"""Bytes from which NumPy looks for temporaries."""


class _Probe:
    """Notes the references to the operands that a product of temporaries has."""

    def __init__(self, seen: dict[str, tuple[int, int]]) -> None:
        self.seen = seen

    def __mul__(self, other: Any) -> Any:
        self.seen["mul"] = getrefcount(self), getrefcount(other)

    def __rmul__(self, other: Any) -> Any:
        self.seen["rmul"] = 0, getrefcount(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self.seen[type(inputs[0]).__name__] = getrefcount(inputs[0]), getrefcount(self)


def _measured() -> tuple[dict[str, tuple[int, int]], int]:
    seen: dict[str, tuple[int, int]] = {}
    _Probe(seen) * _Probe(seen)
    2.0 * _Probe(seen)
    np.zeros(1) * _Probe(seen)
    operators: list[int] = []

    class Operator:
        def __mul__(self, other: Any) -> Any:
            operators.append(_opcode(2))

    Operator() * 1
    return seen, operators[0]


def _opcode(depth: int) -> int:
    """The instruction that a function so many calls up is at."""
    frame = _getframe(depth)
    return frame.f_code.co_code[frame.f_lasti]


_TEMPORARY, _OPERATOR = _measured()
_LEFT, _RIGHT = _TEMPORARY["mul"]
_REFLECTED = _TEMPORARY["rmul"][1]
_ARRAY = _TEMPORARY["ndarray"]


def swaps_product(left_count: int, right_count: int, left: Any, right: Any) -> bool:
    """Whether ``left * right`` is ``right * left`` to NumPy, ``left`` being traced; the counts are of ``__mul__``."""
    if right_count > _RIGHT:
        return False
    x, y = plain(left), plain(right)
    return _holds(y, x) and not (left_count <= _LEFT and _holds(x, y))


def swaps_reflected(right_count: int, left: Any, right: Any) -> bool:
    """The same for a Python number on the left; the count is that of ``__rmul__``."""
    return right_count <= _REFLECTED and _holds(plain(right), left)


def swaps_ufunc(left_count: int, right_count: int, left: Any, right: Any) -> bool:
    """The same for an array on the left; the counts are those of ``__array_ufunc__``."""
    if right_count > _ARRAY[1] or _opcode(3) != _OPERATOR:
        return False
    y = plain(right)
    return _holds(y, left) and not (left_count <= _ARRAY[0] and _holds(left, y))


def _holds(memory: Any, other: Any) -> bool:
    """Whether NumPy would put a product with ``other`` into ``memory``, a temporary."""
    if type(memory) is not np.ndarray or memory.nbytes < LARGE:
        return False
    if not (memory.flags.owndata and memory.flags.writeable):
        return False
    if isinstance(other, np.generic):
        return False  # products of these don't come to where NumPy looks for temporaries
    shape = np.shape(other)
    if shape and (type(other) is not np.ndarray or shape != memory.shape):
        return False
    return np.can_cast(np.asarray(other).dtype, memory.dtype, "safe")
