"""The tape of reverse mode: what a run leaves behind, and the walk back over it.

A tape is a flat list with one entry a value: ``None`` for an input, else a tuple ``(pull, …)``. The walk
back holds a list of cotangents of the same length, takes the last entry off both, and lets ``pull`` add
to the cotangents of earlier values. Entries refer to earlier values by number, so nothing forms a cycle
and everything a step kept is freed as the walk passes it.

Two rules make it fast. A cotangent always has the shape and dtype of its value: ``fit`` sees to that
where broadcasting or mixed dtypes could break it. A cotangent is added to in place exactly when the list
holds the only reference to it, which the reference count tells, so pullbacks may hand on what they got.

Complex values: the cotangent of ``a + ib`` is ``∂L/∂a - i ∂L/∂b`` for a real result ``L``, so that rules
of holomorphic functions are those of real ones.
"""

from __future__ import annotations

from itertools import count
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import add, ndarray

from .hold import ArrayLock, release

_levels = count(1)

ONLY_HERE = 2  # references counted by getrefcount(holder[...]) when the holder has the only one


class StepTape(list):
    """The entries of one run; ``level`` is above that of every derivative it runs inside."""

    __slots__ = ("held", "leaves", "level")

    def __init__(self) -> None:
        self.level = next(_levels)
        self.leaves = 0
        self.held: dict[int, ArrayLock] = {}

    def __del__(self) -> None:
        if self.held:
            release(self.held)


def next_level() -> int:
    """A level above all that exist."""
    return next(_levels)


def walk_back(tape: StepTape, grads: list[Any]) -> None:
    """Pull ``grads``, one entry a value, back to the inputs; both lists shrink to the inputs."""
    pop, drop = tape.pop, grads.pop
    try:
        for _ in range(len(tape) - tape.leaves):
            entry = pop()  # the one before is freed here
            if entry is not None and grads[-1] is not None:
                entry[0](grads, entry)
            drop()
        entry = None
    finally:
        if tape.held:
            release(tape.held)


def accumulate(grads: list[Any], i: int, part: Any) -> None:
    """Add ``part`` to cotangent ``i``."""
    if grads[i] is None:
        grads[i] = part
    elif type(part) is ndarray and is_own(grads, i):
        add(grads[i], part, grads[i])
    else:
        grads[i] = grads[i] + part


def is_own(grads: list[Any], i: int) -> bool:
    """Whether cotangent ``i`` is an array that only ``grads`` refers to, memory included."""
    alone = type(grads[i]) is ndarray and getrefcount(grads[i]) == ONLY_HERE and grads[i].base is None
    return alone and grads[i].flags.writeable


def meta(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype; Python numbers have those of the array they would make."""
    try:
        return value.shape, value.dtype
    except AttributeError:
        return (), np.dtype(type(value))


def fit(part: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """``part`` as the cotangent of a value of this shape and dtype, which may have been broadcast or cast."""
    if shape == () and part.shape != ():
        part = part.sum()
    elif part.shape != shape:
        if part.ndim < len(shape):
            part = part.reshape((1,) * (len(shape) - part.ndim) + part.shape)
        lead = part.ndim - len(shape)
        ones = tuple(lead + i for i, n in enumerate(shape) if n == 1 and part.shape[lead + i] != 1)
        if lead or ones:
            part = part.sum(axis=(*range(lead), *ones), keepdims=True)
        if part.shape != shape:
            part = part.reshape(shape)
    if part.dtype is not dtype and part.dtype != dtype:
        if part.dtype.kind == "c" and dtype.kind != "c":
            part = part.real
        part = part.astype(dtype)
    return part
