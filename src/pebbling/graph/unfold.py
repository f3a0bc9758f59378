"""From what to keep to a sequence of runs, and what that sequence takes: the inner loops of the solvers.

A plan in its compact form is a main line, in which every node stands once, and two decisions for each
event (a use of a storage in the main line): ``keep``, whether the storage stays from that use on to the
next, and ``hold``, the position in the main line from which on a replay of it in that gap stays. All
else is made again on demand: when the main line comes to a node, what is missing of its inputs is
replayed, with what that needs in turn, in the order of the main line.

``unfold`` gives the sequence; ``weigh`` gives the bytes during each run, every result living from its
making to the last use of it before it is made again. Both are written so that numba can compile them,
and run as they are without it.
"""

# The arrays are unpacked under the same names everywhere, used or not.
# ruff: noqa: RUF059

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .indexed import Flags, Ints

Arrays: TypeAlias = tuple[Any, ...]


def unfold(
    graph: Arrays,
    order: Ints,
    rank: Ints,
    keep: Flags,
    hold: Ints,
    stop: int,
    work: Arrays,
) -> int:
    """Fill ``sequence`` and ``position`` (of each run in the main line); how many runs, or -1 if they are too many.

    With ``stop`` 0 or more, ends before that run. ``there`` is then 1 for storages that were kept in the
    main line, 2 for replayed ones that are held, 3 for those that only the node at hand needs;
    ``event`` is the last event of each.
    """
    reads, read_at, makes, make_at, time, workspace, size, maker, fixed, movable = graph
    sequence, position, there, event, live, taken = work
    count = len(order)
    there[:] = 0
    event[:] = -1
    marked = np.full(count, -1, np.int64)
    pending = np.empty(count, np.int64)
    ranks = np.empty(count, np.int64)
    length = 0
    for at in range(count):
        node = order[at]
        waiting = 0
        for i in range(read_at[node], read_at[node + 1]):
            if there[reads[i]] == 0:
                other = maker[reads[i]]
                if marked[other] != at:
                    marked[other] = at
                    pending[waiting] = other
                    waiting += 1
        replays = 0
        while waiting:
            waiting -= 1
            other = pending[waiting]
            ranks[replays] = rank[other]
            replays += 1
            for i in range(read_at[other], read_at[other + 1]):
                if there[reads[i]] == 0:
                    further = maker[reads[i]]
                    if marked[further] != at:
                        marked[further] = at
                        pending[waiting] = further
                        waiting += 1
        if length + replays + 1 > len(sequence):
            return -1
        if replays > 1:
            ranks[:replays].sort()
        for i in range(replays):
            if length == stop:
                return length
            other = order[ranks[i]]
            sequence[length] = other
            position[length] = at
            length += 1
            for j in range(make_at[other], make_at[other + 1]):
                if there[makes[j]] == 0:
                    there[makes[j]] = 3
        if length == stop:
            return length
        sequence[length] = node
        position[length] = at
        length += 1
        for i in range(replays):
            other = order[ranks[i]]
            for j in range(make_at[other], make_at[other + 1]):
                storage = makes[j]
                if there[storage] == 3:
                    there[storage] = 2 if at >= hold[event[storage]] else 0
        for i in range(read_at[node], read_at[node + 1]):
            event[reads[i]] = i
            if movable[reads[i]]:
                there[reads[i]] = 1 if keep[i] else 0
        for j in range(make_at[node], make_at[node + 1]):
            event[makes[j]] = len(reads) + j
            there[makes[j]] = 1 if keep[len(reads) + j] or not movable[makes[j]] else 0
    return length


def weigh(
    graph: Arrays,
    order: Ints,
    length: int,
    stop: int,
    work: Arrays,
) -> tuple[int, int, float]:
    """Fill ``taken`` with the bytes during each run; the most, where that is, and the time of all runs.

    With ``stop`` 0 or more, ends there, with what is alive before that run in ``live``.
    """
    reads, read_at, makes, make_at, time, workspace, size, maker, fixed, movable = graph
    sequence, position, there, event, live, taken = work
    live[:] = False
    stays = 0
    for storage in range(len(size)):
        if fixed[storage]:
            stays += size[storage]
    alive = 0
    peak, worst, total = -1, 0, 0.0
    for at in range(length - 1, -1, -1):
        node = sequence[at]
        total += time[node]
        made = workspace[node]
        for j in range(make_at[node], make_at[node + 1]):
            storage = makes[j]
            made += size[storage]
            if fixed[storage]:
                if order[position[at]] == node:
                    stays -= size[storage]
            elif live[storage]:
                live[storage] = False
                alive -= size[storage]
        for i in range(read_at[node], read_at[node + 1]):
            storage = reads[i]
            if not fixed[storage] and not live[storage]:
                live[storage] = True
                alive += size[storage]
        taken[at] = stays + alive + made
        if taken[at] > peak:
            peak, worst = taken[at], at
        if at == stop:
            break
    return peak, worst, total


def room(graph: Arrays, nodes: int, most: int = 0) -> Arrays:
    """The arrays that the loops work in, for sequences of up to ``most`` runs."""
    most = most or 12 * nodes + 1000
    storages = len(graph[6])
    return (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(storages, np.int64),
        np.empty(storages, np.int64),
        np.empty(storages, np.bool_),
        np.empty(most, np.int64),
    )
