"""Greedy freeing with repair, and local search, on plans in their compact form.

``free_one`` frees what is cheapest to make again for each byte, at the worst moment: the rule of DTR
(Kirisame et al., 2021), but with the future known and the cost of making again counted over all that
is missing. ``relieve`` repeats that until the budget holds, ``shrink`` until nothing helps any more,
``restore`` keeps again whatever still fits, and ``improve`` repeats all of it from random changes and
keeps what is better. None of them is optimal.

Written for numba, see ``unfold``. Work is counted in runs listed, so that a search ends at the same
place whatever the machine.
"""

# The arrays are unpacked under the same names everywhere, used or not.
# ruff: noqa: RUF059

from __future__ import annotations

import numpy as np

from .indexed import Flags, Floats, Ints
from .unfold import Arrays, unfold, weigh


def free_one(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    length: int,
    worst: int,
    excess: int,
    weight: Floats,
    spared: Flags,
    work: Arrays,
) -> bool:
    """Drop one storage that is alive at run ``worst``, of the last ``unfold``; whether there was one.

    ``weight`` multiplies the price of each storage; events in ``spared`` are let alone if others do.
    """
    reads, read_at, makes, make_at, time, workspace, size, maker, fixed, movable = graph
    sequence, position, there, event, live, taken = work
    unfold(graph, order, rank, keep, hold, worst, work)
    weigh(graph, order, length, worst, work)
    at = position[worst]
    # What the node at hand and the replays for its sake still read can't be helped: 2 is read now, 1 later.
    needed = np.zeros(len(size), np.int8)
    last = worst
    while last < length and position[last] == at:
        node = sequence[last]
        for i in range(read_at[node], read_at[node + 1]):
            if needed[reads[i]] == 0:
                needed[reads[i]] = 2 if last == worst else 1
        last += 1
    marked = np.full(len(order), -1, np.int64)
    pending = np.empty(len(order), np.int64)
    best, cheapest = -1, np.inf
    for storage in range(len(size)):
        if not live[storage] or not movable[storage] or there[storage] == 0 or size[storage] == 0:
            continue
        if needed[storage] == 2 or (there[storage] == 3 and (needed[storage] == 1 or hold[event[storage]] > at)):
            continue
        marked[maker[storage]] = storage
        pending[0] = maker[storage]
        waiting, price = 1, 0.0
        while waiting:
            waiting -= 1
            node = pending[waiting]
            price += time[node]
            for i in range(read_at[node], read_at[node + 1]):
                read = reads[i]
                if movable[read] and not live[read] and marked[maker[read]] != storage:
                    marked[maker[read]] = storage
                    pending[waiting] = maker[read]
                    waiting += 1
        price = (price + 1e-9) * weight[storage] / min(size[storage], excess)
        if spared[event[storage]]:
            price *= 1e6
        if price < cheapest:
            best, cheapest = storage, price
    if best < 0:
        return False
    if there[best] == 1:
        keep[event[best]] = False
    else:
        hold[event[best]] = at + 1
    return True


def relieve(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    budget: int,
    weight: Floats,
    spared: Flags,
    spent: Ints,
    limit: int,
    work: Arrays,
) -> float:
    """Free until the budget holds; the time of all runs, or infinity if it can't within ``limit`` changes."""
    for _ in range(limit):
        length = unfold(graph, order, rank, keep, hold, -1, work)
        if length < 0:
            return np.inf
        spent[0] += length
        peak, worst, total = weigh(graph, order, length, -1, work)
        if peak <= budget:
            return total
        if not free_one(graph, order, rank, keep, hold, length, worst, peak - budget, weight, spared, work):
            return np.inf
    return np.inf


def shrink(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    budget: int,
    limit: int,
    work: Arrays,
) -> int:
    """Free on as long as that helps or until the budget holds; the smallest peak, whose plan is left in place."""
    weight, spared = np.ones(len(graph[6])), np.zeros(len(keep), np.bool_)
    best, best_keep, best_hold = -1, keep.copy(), hold.copy()
    spent = 0
    while spent < limit:
        length = unfold(graph, order, rank, keep, hold, -1, work)
        if length < 0:
            break
        spent += length
        peak, worst, _ = weigh(graph, order, length, -1, work)
        if best < 0 or peak < best:
            best = peak
            best_keep[:] = keep
            best_hold[:] = hold
        if peak <= budget:
            break
        if not free_one(graph, order, rank, keep, hold, length, worst, peak - budget, weight, spared, work):
            break
    keep[:] = best_keep
    hold[:] = best_hold
    return best


def restore(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    budget: int,
    total: float,
    turns: Ints,
    work: Arrays,
) -> float:
    """Keep again what fits, trying the events in ``turns`` one by one; the time of all runs."""
    for event in turns:
        was = hold[event]
        if keep[event] and was == 0:
            continue
        for kept in range(2):
            if keep[event] and kept == 0:
                continue
            keep_was = keep[event]
            if kept == 0:
                keep[event] = True
            else:
                hold[event] = 0
            length = unfold(graph, order, rank, keep, hold, -1, work)
            if length >= 0:
                peak, _, time = weigh(graph, order, length, -1, work)
                if peak <= budget and time <= total:
                    total = time
                    break
            keep[event] = keep_was
            hold[event] = was
    return total


def improve(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    budget: int,
    total: float,
    limit: int,
    chances: Floats,
    heat: float,
    work: Arrays,
) -> float:
    """Local search from a plan within the budget, until so many runs are listed; leaves the best in place."""
    size = graph[6]
    best_keep, best_hold, best = keep.copy(), hold.copy(), total
    now_keep, now_hold, now = keep.copy(), hold.copy(), total
    weight = np.ones(len(size))
    spared = np.zeros(len(keep), np.bool_)
    dropped = np.empty(len(keep), np.int64)
    spent = np.zeros(1, np.int64)
    draw = 0
    while spent[0] < limit:
        spent[0] += len(order)
        count = 0
        for event in range(len(keep)):
            if not now_keep[event] or now_hold[event] > 0:
                dropped[count] = event
                count += 1
        if count == 0:
            break
        keep[:] = now_keep
        hold[:] = now_hold
        spared[:] = False
        changes = 1 + int(3 * chances[draw % len(chances)])
        draw += 1
        for _ in range(changes):
            event = dropped[int(count * chances[draw % len(chances)])]
            if chances[(draw + 1) % len(chances)] < 0.6:
                keep[event] = True
            else:
                hold[event] = int(len(order) * chances[(draw + 2) % len(chances)])
            spared[event] = True
            draw += 3
        spread = chances[draw % len(chances)]
        for storage in range(len(size)):
            weight[storage] = 1.0 + spread * (chances[(draw + storage) % len(chances)] - 0.5)
        draw += len(size)
        found = relieve(graph, order, rank, keep, hold, budget, weight, spared, spent, 40, work)
        if found < best:
            best = found
            best_keep[:] = keep
            best_hold[:] = hold
        # Threshold accepting (Dueck and Scheuer, 1990), with a threshold that falls to nothing.
        if found <= now + heat * (1.0 - spent[0] / limit) * chances[draw % len(chances)]:
            now = found
            now_keep[:] = keep
            now_hold[:] = hold
        draw += 1
    keep[:] = best_keep
    hold[:] = best_hold
    return best
