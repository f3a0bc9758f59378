"""One wording for a budget that is too small."""

from __future__ import annotations

from ..errors import BudgetError
from ..units import format_bytes

JITTER = 2 * 1024
"""What two trials of the same step may differ by: Python's own objects and caches. A minimum has room for it."""


def too_few(limit: int, what: str, minimum: int, **parts: int) -> BudgetError:
    """The error for a budget in bytes; ``parts`` are what was measured, by what it is.

    >>> print(too_few(100, "the loop over f", 300, a_state=80, the_reversal_of_a_step=150))
    100 bytes (100 B) are too few for the loop over f: a state takes 80 B, the reversal of a step 150 B; the smallest \
budget is 300 bytes (300 B)
    """
    taken = ""
    if parts:
        first, *others = [(name.replace("_", " "), format_bytes(size)) for name, size in parts.items()]
        taken = ": " + ", ".join([f"{first[0]} takes {first[1]}", *[f"{name} {size}" for name, size in others]])
    return BudgetError(
        f"{limit} bytes ({format_bytes(limit)}) are too few for {what}{taken}; the smallest budget is {minimum} bytes "
        f"({format_bytes(minimum)})",
        minimum=minimum,
    )
