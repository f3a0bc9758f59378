"""What the tests of several rooms ask: same bits? what peak? how many calls? what came out?"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np


def same(mine: Any, theirs: Any) -> bool:
    """Whether two trees (lists, tuples, dicts) hold the same, arrays of any framework to the last bit.

    Two NaN are the same if their bits are. ``0.0`` and ``-0.0`` differ, and so do a list and a tuple.
    """
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, Mapping):
        return list(mine) == list(theirs) and all(same(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if hasattr(mine, "dtype") and hasattr(mine, "shape"):
        return (
            mine.dtype == theirs.dtype and tuple(mine.shape) == tuple(theirs.shape) and _bytes(mine) == _bytes(theirs)
        )
    if isinstance(mine, float):
        return np.float64(mine).tobytes() == np.float64(theirs).tobytes()
    return bool(mine == theirs)


def _bytes(array: Any) -> bytes:
    if hasattr(array, "detach"):
        array = array.detach().resolve_conj().resolve_neg().cpu()
        if array.dtype.is_floating_point and array.element_size() == 2:  # NumPy has no bfloat16
            import torch

            array = array.contiguous().view(torch.int16)
    return np.asarray(array).tobytes()


def peak(call: Callable[[], Any], warm: int = 1) -> int:
    """Bytes that Python and NumPy allocate at the most during a call; ``warm`` calls before it fill caches."""
    for _ in range(warm):
        call()
    gc.collect()
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def counted(function: Callable[..., Any]) -> Any:
    """The same function, which counts its calls in ``calls``."""

    @wraps(function)
    def counting(*arguments: Any, **keywords: Any) -> Any:
        counting.calls += 1
        return function(*arguments, **keywords)

    counting: Any = counting
    counting.calls = 0
    return counting


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or else the type and the text of its error: two of them can be compared by ``same``."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)
