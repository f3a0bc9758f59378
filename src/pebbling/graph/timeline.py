"""Runs on a line of slots, most of them empty, and the bytes at each: what annealing changes, a run at a time.

A node may stand in several slots: its first run, and replays. Each result is there from the run that makes it
to the last read before its node runs again, and an output from its first making to the end. So every order
in which first runs follow those that they need is a plan, and any node that may be replayed can be put into any
slot after its first one. ``put`` and ``take`` change one run, and of the bytes only what differs: the price of a
change grows with the uses of the storages that it touches and the slots between them, not with the graph.

Written for numba, see ``compiled``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .indexed import Flags, Floats, Indexed, Ints


class Wires(NamedTuple):
    """What the loops take of a graph, with who reads each storage, and who comes before and after each node."""

    reads: Ints
    read_at: Ints
    makes: Ints
    make_at: Ints
    readers: Ints
    reader_at: Ints
    before: Ints
    before_at: Ints
    follows: Ints
    follow_at: Ints
    size: Ints
    maker: Ints
    fixed: Flags
    again: Flags
    time: Floats
    workspace: Ints


class Timeline(NamedTuple):
    """The node in each slot or -1, the slots of each node, the last read of what each run makes, and the bytes.

    ``over`` has the bytes above the budget, added up over all slots, and ``state`` that of the random numbers.
    """

    slots: Ints
    runs: Ints
    times: Ints
    end: Ints
    taken: Ints
    over: Ints
    state: Ints


def wires(graph: Indexed) -> Wires:
    """The arrays of a graph."""
    follows: list[list[int]] = [[] for _ in graph.time]
    for node, before in enumerate(graph.before):
        for other in before:
            follows[other].append(node)
    again = np.array([node.replayable and not node.backward for node in graph.graph.nodes], np.bool_)
    return Wires(
        graph.reads, graph.read_at, graph.makes, graph.make_at, *_flat(graph.readers), *_flat(graph.before),
        *_flat(follows), graph.size, graph.maker, graph.fixed, again, graph.time, graph.workspace,
    )  # fmt: skip


def _flat(lists: list[list[int]]) -> tuple[Ints, Ints]:
    flat = np.array([each for some in lists for each in some], np.int64)
    return flat, np.cumsum([0, *(len(some) for some in lists)], dtype=np.int64)


def timeline(graph: Wires, slots: int, runs: int, seed: int) -> Timeline:
    """An empty one, for up to so many runs of a node."""
    nodes, storages = len(graph.time), len(graph.size)

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    state = np.array([seed % 2_147_483_646 + 1], np.int64)
    return Timeline(
        zeros(slots) - 1, zeros(nodes, runs), zeros(nodes), zeros(storages, runs), zeros(slots), zeros(1), state
    )


def chance(line: Timeline) -> float:
    """The next random number from 0 to 1, by Lehmer's generator: the same with numba and without."""
    line.state[0] = line.state[0] * 48271 % 2147483647
    return line.state[0] / 2147483647.0


def shade(line: Timeline, start: int, stop: int, size: int, budget: int) -> None:
    """Add so many bytes to the slots from ``start`` to ``stop``, both included."""
    more = 0
    taken = line.taken[start : stop + 1]
    for i in range(len(taken)):
        was = taken[i]
        taken[i] = was + size
        more += max(was + size - budget, 0) - max(was - budget, 0)
    line.over[0] += more


def last_read(graph: Wires, line: Timeline, storage: int, start: int, stop: int) -> int:
    """The last slot between two others at which a storage is read; the first of the two if there is none."""
    last = start
    for i in range(graph.reader_at[storage], graph.reader_at[storage + 1]):
        reader = graph.readers[i]
        for k in range(line.times[reader] - 1, -1, -1):
            at = line.runs[reader, k]
            if at < stop:
                last = max(last, at)
                break
    return last


def run_before(line: Timeline, node: int, slot: int) -> int:
    """Which run of a node is the last one before a slot; -1 if there is none."""
    k = line.times[node] - 1
    while k >= 0 and line.runs[node, k] >= slot:
        k -= 1
    return k


def put(graph: Wires, line: Timeline, node: int, slot: int, budget: int) -> None:
    """Run a node in an empty slot."""
    k = run_before(line, node, slot)
    count = line.times[node]
    runs, end, size = line.runs, line.end, graph.size
    following = runs[node, k + 1] if k + 1 < count else len(line.slots)
    for j in range(count, k + 1, -1):
        runs[node, j] = runs[node, j - 1]
    runs[node, k + 1] = slot
    line.times[node] = count + 1
    line.slots[slot] = node
    shade(line, slot, slot, graph.workspace[node], budget)
    for m in range(graph.make_at[node], graph.make_at[node + 1]):
        storage = graph.makes[m]
        for j in range(count, k + 1, -1):
            end[storage, j] = end[storage, j - 1]
        end[storage, k + 1] = slot
        if graph.fixed[storage]:
            # It is there from the first run on, and while another run makes it once more, twice.
            shade(line, slot, slot if k >= 0 else min(following, len(line.slots) - 1), size[storage], budget)
        elif k < 0:
            end[storage, 0] = last_read(graph, line, storage, slot, following)
            shade(line, slot, end[storage, 0], size[storage], budget)
        elif end[storage, k] > slot:
            end[storage, k + 1] = end[storage, k]
            end[storage, k] = last_read(graph, line, storage, runs[node, k], slot)
            shade(line, end[storage, k] + 1, slot - 1, -size[storage], budget)
        else:
            shade(line, slot, slot, size[storage], budget)
    for i in range(graph.read_at[node], graph.read_at[node + 1]):
        storage = graph.reads[i]
        maker = graph.maker[storage]
        source = run_before(line, maker, slot)
        if not graph.fixed[storage] and slot > end[storage, source]:
            shade(line, end[storage, source] + 1, slot, size[storage], budget)
            end[storage, source] = slot


def take(graph: Wires, line: Timeline, node: int, k: int, budget: int) -> None:
    """Take one run of a node out again."""
    runs, end, size = line.runs, line.end, graph.size
    slot, count = runs[node, k], line.times[node]
    for j in range(k, count - 1):
        runs[node, j] = runs[node, j + 1]
    line.times[node] = count - 1
    line.slots[slot] = -1
    following = runs[node, k] if k < count - 1 else len(line.slots)
    for i in range(graph.read_at[node], graph.read_at[node + 1]):
        storage = graph.reads[i]
        maker = graph.maker[storage]
        source = run_before(line, maker, slot)
        if not graph.fixed[storage] and end[storage, source] == slot:
            end[storage, source] = last_read(graph, line, storage, runs[maker, source], slot)
            shade(line, end[storage, source] + 1, slot, -size[storage], budget)
    shade(line, slot, slot, -graph.workspace[node], budget)
    for m in range(graph.make_at[node], graph.make_at[node + 1]):
        storage = graph.makes[m]
        last = end[storage, k]
        for j in range(k, count - 1):
            end[storage, j] = end[storage, j + 1]
        if graph.fixed[storage]:
            shade(line, slot, slot if k > 0 else min(following, len(line.slots) - 1), -size[storage], budget)
        elif k == 0:
            shade(line, slot, last, -size[storage], budget)
        elif last > slot:
            shade(line, end[storage, k - 1] + 1, slot - 1, size[storage], budget)
            end[storage, k - 1] = last
        else:
            shade(line, slot, slot, -size[storage], budget)


def lay(graph: Wires, line: Timeline, sequence: Ints, length: int, budget: int) -> None:
    """Start anew from a sequence of runs, spread evenly."""
    line.slots[:] = -1
    line.times[:] = 0
    line.taken[:] = 0
    line.over[0] = 0
    for i in range(length):
        put(graph, line, sequence[i], i * len(line.slots) // length, budget)


def gather(line: Timeline, sequence: Ints) -> int:
    """The nodes in the order of their slots; how many."""
    length = 0
    for node in line.slots:
        if node >= 0:
            sequence[length] = node
            length += 1
    return length
