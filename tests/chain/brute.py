"""The slow, obvious versions of what pebbling.chain computes fast."""

from __future__ import annotations

from fractions import Fraction
from functools import cache


@cache
def advances(n: int, c: int) -> float:
    """Fewest advances with c slots, by trying every split."""
    if n <= 1:
        return 0
    if c == 0:
        return float("inf")
    return min(j + advances(j, c) + advances(n - j, c - 1) for j in range(1, n))


@cache
def stores(n: int, c: int, kept: bool = False) -> int:
    """Fewest snapshots written by a plan with the fewest advances."""
    if n <= 1:
        return 0
    best = advances(n, c)
    return min(
        (not kept) + stores(j, c, True) + stores(n - j, c - 1)
        for j in range(1, n)
        if j + advances(j, c) + advances(n - j, c - 1) == best
    )


def mixed(n: int, memory: Fraction, tape: Fraction, kept: bool = False) -> tuple[float, int]:
    """Fewest forwards, then fewest stores, with states of size 1 and tapes of size ``tape``."""
    return _mixed(n, memory, tape, kept)


@cache
def _mixed(n: int, memory: Fraction, tape: Fraction, kept: bool) -> tuple[float, int]:
    if n <= 1:
        return n, 0
    options: list[tuple[float, int]] = [(float("inf"), 0)]
    if memory >= tape:
        forwards, written = _mixed(n - 1, memory - tape, tape, False)
        options.append((1 + forwards, written))
    if memory >= 1:
        for j in range(1, n):
            left, right = _mixed(j, memory, tape, True), _mixed(n - j, memory - 1, tape, False)
            options.append((j + left[0] + right[0], (not kept) + left[1] + right[1]))
    return min(options)


def best_anyhow(n: int, c: int) -> int:
    """Fewest forwards of any valid play with c slots, by searching all states of the game.

    Knows nothing of splits: a state of the search is (end, working state, set of stored steps).
    """
    from heapq import heappop, heappush

    start = (n, 0, frozenset())
    queue: list[tuple[int, int, tuple[int, int, frozenset[int]]]] = [(0, 0, start)]
    seen: dict[tuple[int, int, frozenset[int]], int] = {start: 0}
    tie = 0
    while queue:
        cost, _, (end, at, held) = heappop(queue)
        if end == 0:
            return cost
        if seen[end, at, held] < cost:
            continue
        following = []
        if at == end - 1:
            following.append((1, (end - 1, -1, frozenset(s for s in held if s < end - 1))))
        if 0 <= at < end - 1:
            following.append((1, (end, at + 1, held)))
        if at >= 0 and at not in held and len(held) < c:
            following.append((0, (end, at, held | {at})))
        following += [(0, (end, s, held)) for s in held if s < end]
        following += [(0, (end, at, held - {s})) for s in held]
        for extra, state in following:
            if cost + extra < seen.get(state, 1 << 30):
                seen[state] = cost + extra
                tie += 1
                heappush(queue, (cost + extra, tie, state))
    raise AssertionError("no play reverses all steps")
