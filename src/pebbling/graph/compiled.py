"""The inner loops compiled by numba, where it is installed; each gives the same result without it."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

from . import anneal, search, timeline, unfold

_LOOPS: tuple[Callable[..., Any], ...] = (
    unfold.unfold, unfold.weigh, unfold.park, search.host_room, search.free_one, search.relieve, search.shrink,
    search.unload, search.restore, search.improve,
    timeline.chance, timeline.shade, timeline.last_read, timeline.run_before, timeline.put, timeline.take, timeline.lay,
    timeline.gather, anneal.accept, anneal.empty_near, anneal.another_slot, anneal.another_run, anneal.second_suffices,
    anneal.anneal,
)  # fmt: skip


@cache
def loops(compile: bool = True) -> SimpleNamespace:
    """The loops by name; ``.fast`` says whether they are compiled."""
    plain = {loop.__name__: loop for loop in _LOOPS}
    if not compile:
        return SimpleNamespace(fast=False, **plain)
    try:
        import numba
    except ImportError:
        return SimpleNamespace(fast=False, **plain)
    made: dict[str, Any] = {}
    stamp = _stamp(_LOOPS)
    for loop in _LOOPS:
        # A loop that calls another finds it among its globals, which must be the compiled one.
        copy = FunctionType(loop.__code__, {**loop.__globals__, **made}, loop.__name__, loop.__defaults__)
        # What numba keeps on disk it finds by this name, and looks only at the file of the loop itself for changes.
        copy.__qualname__ = f"{loop.__qualname__}_{stamp}"
        made[loop.__name__] = numba.njit(cache=True)(copy)
    return SimpleNamespace(fast=True, **made)


def _stamp(loops: Sequence[Callable[..., Any]]) -> str:
    """A name for the code of all loops, the numbers that it takes from its modules, and the tuples that it is given.

    What numba keeps names the classes of those tuples: after one was renamed it could not be read.
    """
    found = hashlib.sha256()
    for loop in loops:
        code, names = loop.__code__, loop.__globals__
        found.update(marshal.dumps(code))
        numbers = [(name, names[name]) for name in code.co_names if isinstance(names.get(name), int | float)]
        kinds = sorted((name, kind._fields) for name, kind in names.items() if hasattr(kind, "_fields"))
        found.update(repr((numbers, kinds)).encode())
    return found.hexdigest()[:12]
