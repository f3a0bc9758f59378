"""Closed forms of binomial checkpointing.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000). ``slots`` counts the slot of
the initial state, an advance is a step without a tape. Optimal for steps of equal cost and states
of equal size, when only states are kept.
"""

from __future__ import annotations

from math import comb, isqrt


def beta(slots: int, repeats: int) -> int:
    """The most steps that ``slots`` slots reverse with no step advanced more than ``repeats`` times."""
    return comb(slots + repeats, slots) if slots >= 0 and repeats >= 0 else 0


def repeats(steps: int, slots: int) -> int:
    """How often the most repeated step is advanced: the r for which beta(c, r-1) < n ≤ beta(c, r)."""
    if slots == 1:
        return max(steps - 1, 0)
    if slots == 2:
        root = (isqrt(8 * steps + 1) - 3) // 2
        return max(0, root if beta(2, root) >= steps else root + 1)
    r, reach = 0, 1
    while reach < steps:
        r += 1
        reach = reach * (slots + r) // r
    return r


def advances(steps: int, slots: int) -> int:
    """The fewest advances that reverse ``steps`` steps with ``slots`` slots.

    >>> advances(10, 3), advances(100, 5), advances(10**6, 100)
    (15, 316, 3817896)
    """
    if steps <= 1:
        return 0
    r = repeats(steps, slots)
    return r * steps - beta(slots + 1, r - 1)


def stores(steps: int, slots: int) -> int:
    """The fewest snapshots written by any plan with the fewest advances.

    >>> stores(50, 7), stores(500, 4), stores(10000, 500)
    (28, 165, 9499)
    """
    if steps <= 1:
        return 0
    r = repeats(steps, slots)
    return max(beta(slots - 1, r - 1), steps - beta(slots, r - 1))


def fewest_writes(steps: int, slots: int) -> int:
    """The first advance that leads to the fewest advances and, among those plans, the fewest stores."""
    if slots == 1:
        return steps - 1
    r = repeats(steps, slots)
    if steps <= beta(slots, r - 1) + beta(slots - 2, r - 1):
        return max(1, beta(slots, r - 2))
    if steps >= beta(slots, r) - beta(slots - 3, r):
        return beta(slots, r - 1)
    return steps - beta(slots - 1, r - 1) - beta(slots - 2, r - 1)


def longest_runs(steps: int, slots: int) -> int:
    """The largest first advance that leads to the fewest advances: the last steps then form long runs."""
    if slots == 1:
        return steps - 1
    r = repeats(steps, slots)
    return max(1, min(beta(slots, r - 1), steps - beta(slots - 1, r - 1)))


def default_slots(steps: int) -> int:
    """The fewest slots for which no step is advanced more than twice, about the square root of 2n.

    >>> default_slots(1000), default_slots(1), default_slots(0)
    (44, 1, 1)
    """
    slots = max(1, (isqrt(8 * max(steps, 1) + 1) - 3) // 2)
    return slots if beta(slots, 2) >= steps else slots + 1
