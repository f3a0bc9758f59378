"""The inner loops compiled by numba, where it is installed; each gives the same result without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

from . import search, unfold

_LOOPS: tuple[Callable[..., Any], ...] = (
    unfold.unfold, unfold.weigh, unfold.park, search.host_room, search.free_one, search.relieve, search.shrink,
    search.unload, search.restore, search.improve,
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
    for loop in _LOOPS:
        # A loop that calls another finds it among its globals, which must be the compiled one.
        copy = FunctionType(loop.__code__, {**loop.__globals__, **made}, loop.__name__, loop.__defaults__)
        copy.__qualname__ = loop.__qualname__
        made[loop.__name__] = numba.njit(cache=True)(copy)
    return SimpleNamespace(fast=True, **made)
