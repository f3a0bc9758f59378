"""A function with a loop, for the examples in docstrings: the source of a function has to lie in a file."""

from __future__ import annotations

from typing import Any


def decay(u: Any) -> Any:
    """What is left of the sum of ``u`` after a hundred steps."""

    for _ in range(100):
        u = u - 0.01 * u
    return u.sum()
