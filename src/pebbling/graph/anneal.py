"""Orders and replays at once, by simulated annealing (Kirkpatrick et al., 1983) on a line of slots.

A change moves one run to another slot, runs a node once more before one that reads it, or takes a replay out.
Bytes above the budget have a price, added up over the slots, which rises while the temperature falls. That is
what graphs without a backward pass want, where another order often needs no replay at all; Imanishi et al.
(FastSA, 2023) anneal in the same spirit, with the peak as the price. It is not exact, and what has to be replayed
in long chains is better found by ``search``: a chain comes about one run at a time.

Written for numba, see ``compiled``. Changes are counted, never timed.
"""

from __future__ import annotations

import numpy as np

from .indexed import Ints
from .timeline import Timeline, Wires, chance, gather, lay, put, run_before, take


def anneal(
    graph: Wires, line: Timeline, budget: int, start: int, stop: int, changes: int, hot: float, cold: float,
    dear: float, best: float, sequence: Ints, found: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Changes from ``start`` to ``stop`` of so many; the time of the best plan, left in ``found``, and its runs."""
    nodes, length = len(graph.time), 0
    temperature, price = hot, dear
    time = 0.0
    for node in range(nodes):
        time += graph.time[node] * line.times[node]
    for change in range(start, stop):
        if change % 1024 == 0 or change == start:
            part = change / changes
            temperature = hot * (cold / hot) ** part
            price = dear * 0.1 ** (1.0 - part)
        if change % (40 * nodes) == 0 and change > 0:
            # Replays fill the slots near to what they serve: make room everywhere.
            lay(graph, line, sequence, gather(line, sequence), budget)
        over = line.over[0]
        kind = chance(line)
        if kind < 0.5:
            node = int(chance(line) * nodes)
            k = int(chance(line) * line.times[node])
            was = line.runs[node, k]
            slot = another_slot(graph, line, node, k)
            if slot < 0:
                continue
            take(graph, line, node, k, budget)
            put(graph, line, node, slot, budget)
            if not accept(line, price * (line.over[0] - over), temperature):
                take(graph, line, node, k, budget)
                put(graph, line, node, was, budget)
                continue
        elif kind < 0.8:
            node, slot = another_run(graph, line)
            if slot < 0:
                continue
            put(graph, line, node, slot, budget)
            if not accept(line, graph.time[node] + price * (line.over[0] - over), temperature):
                take(graph, line, node, run_before(line, node, slot + 1), budget)
                continue
            time += graph.time[node]
        else:
            node = int(chance(line) * nodes)
            if line.times[node] < 2:
                continue
            k = 0
            if chance(line) < 0.7 or not second_suffices(graph, line, node):
                k = 1 + int(chance(line) * (line.times[node] - 1))
            was = line.runs[node, k]
            take(graph, line, node, k, budget)
            if not accept(line, price * (line.over[0] - over) - graph.time[node], temperature):
                put(graph, line, node, was, budget)
                continue
            time -= graph.time[node]
        if line.over[0] == 0 and time < best * (1 - 1e-9):
            best, length = time, gather(line, found)
    return best, length


def accept(line: Timeline, more: float, temperature: float) -> bool:
    """Whether a change that costs so much more is made."""
    return more <= 0 or chance(line) < np.exp(-more / temperature)


def another_slot(graph: Wires, line: Timeline, node: int, k: int) -> int:
    """An empty slot that a run may move to, -1 if none was met."""
    start, stop = -1, len(line.slots)
    if k > 0:
        start = line.runs[node, k - 1]
    if k + 1 < line.times[node]:
        stop = line.runs[node, k + 1]
    if k == 0:
        for i in range(graph.before_at[node], graph.before_at[node + 1]):
            start = max(start, line.runs[graph.before[i], 0])
        for i in range(graph.follow_at[node], graph.follow_at[node + 1]):
            stop = min(stop, line.runs[graph.follows[i], 0])
    way = chance(line)
    if way < 0.2:
        return empty_near(line, stop - 1, start, stop)
    if way < 0.3:
        return empty_near(line, start + 1, start, stop)
    if way < 0.6:
        return empty_near(line, start + 1 + int(chance(line) * (stop - start - 1)), start, stop)
    return empty_near(line, line.runs[node, k] + int((chance(line) - 0.5) * 60), start, stop)


def another_run(graph: Wires, line: Timeline) -> tuple[int, int]:
    """A node that may be replayed, and an empty slot before a run that reads it; slot -1 if none was met."""
    reader = int(chance(line) * len(graph.time))
    reads = graph.read_at[reader + 1] - graph.read_at[reader]
    if reads == 0:
        return 0, -1
    node = graph.maker[graph.reads[graph.read_at[reader] + int(chance(line) * reads)]]
    if not graph.again[node] or line.times[node] == line.runs.shape[1]:
        return node, -1
    stop = line.runs[reader, int(chance(line) * line.times[reader])]
    start = line.runs[node, run_before(line, node, stop)]
    back = chance(line) ** 3
    return node, empty_near(line, stop - 1 - int(back * (stop - start - 1)), start, stop)


def second_suffices(graph: Wires, line: Timeline, node: int) -> bool:
    """Whether all that follow a node run after its second run as well."""
    for i in range(graph.follow_at[node], graph.follow_at[node + 1]):
        if line.runs[graph.follows[i], 0] < line.runs[node, 1]:
            return False
    return True


def empty_near(line: Timeline, slot: int, start: int, stop: int) -> int:
    """The empty slot nearest to one, between two others; -1 if none is near."""
    for apart in range(24):
        if start < slot - apart < stop and line.slots[slot - apart] < 0:
            return slot - apart
        if start < slot + apart < stop and line.slots[slot + apart] < 0:
            return slot + apart
    return -1
