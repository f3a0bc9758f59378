"""From what to keep to a sequence of runs, and what that sequence takes: the inner loops of the solvers.

A plan in its compact form is a main line, in which every node stands once, and three decisions for each
event (a use of a storage in the main line): ``keep``, whether the storage stays from that use on to the
next; ``sent``, whether one that does not stay goes to the host; and ``hold``, the position in the main
line from which on it stays once it is there again. All else comes on demand: when the main line comes to
a node, what is missing of its inputs is fetched from the host, if it was sent there, or replayed, with
what that needs in turn, in the order of the main line.

``unfold`` gives the sequence, in which node ``len(time) + s`` is the fetch of storage ``s``; ``weigh``
gives the bytes during each run, every result living from its making to the last use of it before it is
made again; ``park`` gives those on the host, where it is from its last use to its fetch. All are written
so that numba can compile them, and run as they are without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .indexed import Arrays, Flags, Ints


class Choices(NamedTuple):
    """A plan in its compact form; ``rank`` is the position of each node in ``order``."""

    order: Ints
    rank: Ints
    keep: Flags
    hold: Ints
    sent: Flags


class Workspace(NamedTuple):
    """The arrays that the loops work in: by run, by storage, and what ``unfold`` alone uses."""

    sequence: Ints
    position: Ints
    taken: Ints
    parked: Ints
    there: Ints
    event: Ints
    live: Flags
    away: Flags
    called: Ints
    first: Ints
    fetches: Ints
    marked: Ints
    pending: Ints
    keys: Ints


def room(graph: Arrays, most: int = 0) -> Workspace:
    """Room for sequences of up to ``most`` runs."""
    nodes, storages = len(graph.time), len(graph.size)
    most = most or 12 * nodes + 1000
    sequence, position, taken, parked = (np.empty(most, np.int64) for _ in range(4))
    there, event, called, first, fetches = (np.empty(storages, np.int64) for _ in range(5))
    live, away = np.empty(storages, np.bool_), np.empty(storages, np.bool_)
    marked, pending, keys = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.empty(nodes + storages, np.int64)
    return Workspace(
        sequence, position, taken, parked, there, event, live, away, called, first, fetches, marked, pending, keys
    )  # fmt: skip


def unfold(graph: Arrays, plan: Choices, stop: int, work: Workspace) -> int:
    """Fill ``sequence`` and ``position`` (of each run in the main line); how many runs, or -1 if they are too many.

    With ``stop`` 0 or more, ends before that run. ``there`` is then 1 for storages that were kept in the
    main line, 2 for replayed and fetched ones that are held, 3 for those that only the node at hand needs;
    ``event`` is the last event of each.
    """
    reads, read_at, makes, make_at, maker = graph.reads, graph.read_at, graph.makes, graph.make_at, graph.maker
    order, rank, keep, hold, sent = plan.order, plan.rank, plan.keep, plan.hold, plan.sent
    sequence, position, there, event = work.sequence, work.position, work.there, work.event
    count, storages = len(order), len(graph.size)
    there[:] = 0
    event[:] = -1
    marked, pending, called, first, fetches = work.marked, work.pending, work.called, work.first, work.fetches
    marked[:] = -1
    called[:] = -1
    # A run is the rank of its node, a fetch that of its first reader; the low bits are the storage, or none.
    keys = work.keys
    shift = 1
    while 1 << shift <= storages:
        shift += 1
    low = (1 << shift) - 1
    length = 0
    for at in range(count):
        node = order[at]
        waiting, listed, fetched = 0, 0, 0
        for i in range(read_at[node], read_at[node + 1]):
            if there[reads[i]] == 0:
                pending[0] = node
                waiting = 1
                break
        while waiting:
            waiting -= 1
            node = pending[waiting]
            if rank[node] != at:
                keys[listed] = (rank[node] << shift) + storages
                listed += 1
            for i in range(read_at[node], read_at[node + 1]):
                read = reads[i]
                if there[read] != 0:
                    continue
                if sent[event[read]]:
                    if called[read] != at:
                        called[read] = at
                        first[read] = rank[node]
                        fetches[fetched] = read
                        fetched += 1
                    elif rank[node] < first[read]:
                        first[read] = rank[node]
                elif marked[maker[read]] != at:
                    marked[maker[read]] = at
                    pending[waiting] = maker[read]
                    waiting += 1
        for i in range(fetched):
            keys[listed] = (first[fetches[i]] << shift) + fetches[i]
            listed += 1
        if length + listed + 1 > len(sequence):
            return -1
        if listed > 1:
            keys[:listed].sort()
        for i in range(listed):
            if length == stop:
                return length
            storage = keys[i] & low
            if storage < storages:
                # A replay for another result of the same node may have made it.
                if there[storage] == 0:
                    there[storage] = 3
                    sequence[length] = count + storage
                    position[length] = at
                    length += 1
                continue
            node = order[keys[i] >> shift]
            sequence[length] = node
            position[length] = at
            length += 1
            for j in range(make_at[node], make_at[node + 1]):
                if there[makes[j]] == 0:
                    there[makes[j]] = 3
        if length == stop:
            return length
        node = order[at]
        sequence[length] = node
        position[length] = at
        length += 1
        for i in range(listed):
            storage = keys[i] & low
            if storage < storages:
                if there[storage] == 3:
                    there[storage] = 2 if at >= hold[event[storage]] else 0
                continue
            other = order[keys[i] >> shift]
            for j in range(make_at[other], make_at[other + 1]):
                storage = makes[j]
                if there[storage] == 3:
                    there[storage] = 2 if at >= hold[event[storage]] else 0
        for i in range(read_at[node], read_at[node + 1]):
            event[reads[i]] = i
            there[reads[i]] = 1 if keep[i] else 0
        for j in range(make_at[node], make_at[node + 1]):
            event[makes[j]] = len(reads) + j
            there[makes[j]] = 1 if keep[len(reads) + j] else 0
    return length


def weigh(graph: Arrays, plan: Choices, length: int, stop: int, work: Workspace) -> tuple[int, int, float]:
    """Fill ``taken`` with the bytes during each run; the most, where that is, and the time of all runs.

    With ``stop`` 0 or more, ends there, with what is alive before that run in ``live``.
    """
    reads, read_at, makes, make_at, size, fixed = (
        graph.reads, graph.read_at, graph.makes, graph.make_at, graph.size, graph.fixed,
    )  # fmt: skip
    sequence, position, taken, live = work.sequence, work.position, work.taken, work.live
    order, count = plan.order, len(plan.order)
    live[:] = False
    stays = 0
    for storage in range(len(size)):
        if fixed[storage]:
            stays += size[storage]
    alive = 0
    peak, worst, total = -1, 0, 0.0
    for at in range(length - 1, -1, -1):
        node = sequence[at]
        if node >= count:
            storage = node - count
            total += graph.trip[storage]
            live[storage] = False
            taken[at] = stays + alive
            alive -= size[storage]
        else:
            total += graph.time[node]
            made = graph.workspace[node]
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


def park(graph: Arrays, length: int, stop: int, work: Workspace) -> int:
    """Fill ``parked`` with the bytes on the host during each run, and ``away``, at the last; the most of them."""
    reads, read_at, makes, make_at, size = graph.reads, graph.read_at, graph.makes, graph.make_at, graph.size
    parked, away, count = work.parked, work.away, len(graph.time)
    if graph.host <= 0:
        return 0
    away[:] = False
    hosted, most = 0, 0
    for at in range(length - 1, -1, -1):
        node = work.sequence[at]
        if node >= count:
            away[node - count] = True
            hosted += size[node - count]
        else:
            for j in range(make_at[node], make_at[node + 1]):
                if away[makes[j]]:
                    away[makes[j]] = False
                    hosted -= size[makes[j]]
            for i in range(read_at[node], read_at[node + 1]):
                if away[reads[i]]:
                    away[reads[i]] = False
                    hosted -= size[reads[i]]
        parked[at] = hosted
        most = max(most, hosted)
        if at == stop:
            break
    return most
