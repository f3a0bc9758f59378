"""A number that stands for all bits of a value within one process, to see whether a replay gave the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tree import fingerprint, kind_of
from ..tree.compare import digest
from ..tree.leaves import PLAIN

_SMALL = 2048
_MASK = (1 << 64) - 1
UNKNOWN = 0
"""The mark of a value of which nothing can be said, because it can't be pickled."""


def mark(value: Any) -> int:
    """64 bits that change when any bit of the value does.

    >>> mark(0.0) == mark(0.0), mark(0.0) == mark(-0.0)
    (True, False)
    """
    if type(value) is np.ndarray and value.dtype.kind in "biufc" and value.dtype.char not in "gG":
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        bits = hash(content.tobytes()) if content.size <= _SMALL else digest(content)
        return hash((value.dtype.str, value.shape, bits)) & _MASK
    if kind_of(value) is PLAIN:
        return hash((type(value), repr(value))) & _MASK
    try:
        return int(fingerprint(value)[:16], 16)
    except Exception:
        return UNKNOWN


def is_array(value: Any) -> bool:
    """Whether a value is an array of a kind that is known, and so could be written into."""
    return kind_of(value).name in ("numpy", "torch", "jax")
