"""Flat lists of values told apart by lists of booleans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def parts(values: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """``values`` cut into lists of the given sizes; a last list takes what is left."""
    out, start = [], 0
    for size in sizes:
        out.append(list(values[start : start + size]))
        start += size
    out.append(list(values[start:]))
    return out


def pick(mask: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """The values whose mask is set."""
    return [value for chosen, value in zip(mask, values, strict=True) if chosen]


def drop(mask: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """The values whose mask is not set."""
    return [value for chosen, value in zip(mask, values, strict=True) if not chosen]


def merge(mask: Sequence[bool], unset: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
    """The inverse of ``drop`` and ``pick``."""
    first, second = iter(unset), iter(chosen)
    return [next(second) if m else next(first) for m in mask]


def spread(mask: Sequence[bool], chosen: Sequence[Any], default: Callable[[int], Any]) -> list[Any]:
    """One value for each entry of the mask: from ``chosen`` where it is set, ``default(index)`` elsewhere."""
    values = iter(chosen)
    return [next(values) if m else default(index) for index, m in enumerate(mask)]


def either(one: Sequence[bool], two: Sequence[bool]) -> list[bool]:
    """Set where any of the two is."""
    return [a or b for a, b in zip(one, two, strict=True)]


def settle(mask: Sequence[bool], grow: Callable[[list[bool]], tuple[Any, list[bool]]]) -> tuple[Any, list[bool], Any]:
    """Grow a mask over what a loop carries until one more step leaves it as it is.

    ``grow(mask)`` gives something made for that mask, and the mask of all outputs, those of the
    carried values first. Returns what was made last, the mask, and the mask of the other outputs.
    """
    current = list(mask)
    while True:
        made, out = grow(current)
        grown = either(current, out[: len(current)])
        if grown == current:
            return made, current, out[len(current) :]
        current = grown
