"""Loops that numba compiles, where it is installed and the work outweighs the wait for the compiler.

Each such loop has a NumPy twin that gives the same result to the last bit, so which of the two
runs is a matter of time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def faster(loop: Function, twin: Function, work: float, worth: float) -> Function:
    """``loop`` compiled, if ``work`` is at least ``worth`` and numba is there; else its NumPy twin."""
    return (_compiled(loop) if work >= worth else None) or twin


@cache
def _compiled(loop: Any) -> Any:
    """``loop`` compiled, or ``None`` without numba."""
    try:
        import numba
    except ImportError:
        return None
    return numba.njit(loop)
