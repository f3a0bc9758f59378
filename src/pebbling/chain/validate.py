"""Arguments of plans: what is accepted, and the error that says so."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any


def whole(value: Any, name: str, least: int) -> int:
    """``value`` as an int of at least ``least``."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def amount(value: Any, name: str, positive: bool = False) -> float:
    """``value`` as a finite number that is not negative (or, if asked, not zero either)."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        kind = "positive" if positive else "zero or positive"
        raise ValueError(f"{name} must be a {kind}, finite number, not {value!r}")
    return number


def amounts(values: Any, name: str, length: int | None = None, positive: bool = False) -> tuple[float, ...]:
    """``values`` as a tuple of such numbers, one a step."""
    if isinstance(values, str) or not (isinstance(values, Sequence) or hasattr(values, "__array__")):
        raise ValueError(f"{name} must be a list with one number a step, not {values!r}")
    numbers = tuple(amount(value, f"{name}[{i}]", positive) for i, value in enumerate(values))
    if length is not None and len(numbers) != length:
        raise ValueError(f"{name} has {len(numbers)} entries for {length} steps: one a step is needed")
    return numbers
