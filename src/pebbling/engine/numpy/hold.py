"""Plain arrays that a tape refers to are read-only until the tape is done.

A tape keeps the arrays that its pullbacks need, not copies. If the program then wrote into one of them,
the gradient would be silently wrong; so they are locked, and NumPy raises at the line that writes.
Not seen: a write through another view of the same memory that was made before the array was used.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

READ_ONLY = (
    "A plain array used together with differentiated ones is read-only until the gradient is done, "
    "because the gradient needs its value: write into a copy of it instead (x = x.copy())."
)


class ArrayLock(weakref.ref):
    """One array that was writable, and how many tapes need it as it is."""

    __slots__ = ("count", "key")

    key: int
    count: int


_locks: dict[int, ArrayLock] = {}
_waiting: list[ArrayLock] = []


def _forget(lock: Any) -> None:
    _locks.pop(lock.key, None)


def hold(held: dict[int, ArrayLock], array: Any) -> None:
    """Lock ``array`` and the arrays whose memory it shares, and note it in ``held``."""
    while isinstance(array, np.ndarray):
        key = id(array)
        lock = _locks.get(key)
        if lock is None and array.flags.writeable:
            lock = ArrayLock(array, _forget)
            lock.key, lock.count = key, 0
            _locks[key] = lock
            array.flags.writeable = False
        if lock is not None:
            if held.get(key) is lock:
                return
            held[key] = lock
            lock.count += 1
        array = array.base


SMALL = 512
"""Bytes up to which an array is copied, so that nobody needs to keep from writing into it."""


def keep(held: dict[int, ArrayLock], array: Any) -> Any:
    """``array``, locked, or a copy of it if it is small: what a tape may refer to."""
    if array.nbytes <= SMALL:
        return array.copy("K")
    hold(held, array)
    return array


def small_copy(value: Any) -> Any:
    """A copy of a small array; anything else as it is."""
    return value.copy("K") if type(value) is np.ndarray and value.nbytes <= SMALL else value


def is_held(key: int) -> bool:
    """Whether the array with that id is locked by a tape."""
    lock = _locks.get(key)
    return lock is not None and lock() is not None


def hold_captured(held: dict[int, ArrayLock], functions: Iterable[Any], args: Iterable[Any]) -> None:
    """Lock those of the plain arrays among ``args`` that pullbacks have captured, whole or as views."""
    reachable = [array for array in _arrays(args) if isinstance(array, np.ndarray)]
    if not reachable:
        return
    owners = {id(array) for array in reachable} | {id(array.base) for array in reachable if array.base is not None}
    for function in functions:
        for array in _arrays([cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]):
            if isinstance(array, np.ndarray) and (id(array) in owners or id(array.base) in owners):
                hold(held, array)


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (tuple, list):
            yield from _arrays(value)
        else:
            yield value


def release(held: dict[int, ArrayLock]) -> None:
    """Give back what ``hold`` noted in ``held``."""
    for lock in held.values():
        lock.count -= 1
        if lock.count == 0:
            _waiting.append(lock)
    held.clear()
    # A view becomes writable only after the array it looks into, hence the repetition; what another
    # tape still needs waits for that tape.
    progress = True
    while progress and _waiting:
        before = len(_waiting)
        _waiting[:] = [lock for lock in _waiting if not _unlocked(lock)]
        progress = len(_waiting) < before


def _unlocked(lock: ArrayLock) -> bool:
    array = lock()
    if array is None or lock.count > 0:
        return True
    try:
        array.flags.writeable = True
    except ValueError:
        return False
    _locks.pop(id(array), None)
    return True
