"""Orders of the nodes with a smaller peak, everything being kept until its last use.

List scheduling by three rules, the best of which counts, and for graphs of up to 16 nodes a dynamic
programme over all sets of nodes that have run (Held and Karp's scheme), which is exact. The problem is
NP-hard: larger graphs may have better orders than the one found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .board import Board, KeptLine
from .indexed import Indexed, Ints

_EXACT, _LARGE = 16, 1500
"""Nodes up to which the exact programme runs, and up to which all rules are tried."""
Rule = Callable[[int, int, int], tuple[int, ...]]
"""What makes a ready node come first: from its position, what it takes while it runs and what it leaves behind."""

_RULES: tuple[Rule, ...] = (
    lambda position, during, after: (position,) if after > 0 else (-1, after, position),
    lambda position, during, after: (during, after, position),
    lambda position, during, after: (after, during, position),
)


def best_order(graph: Indexed, board: Board) -> tuple[Ints, int]:
    """The order with the smallest peak found, and that peak; the given one if none is better."""
    count = len(graph.time)
    lines = [board.everything()]
    lines += [board.everything(by_rule(graph, rule)) for rule in (_RULES if count <= _LARGE else _RULES[:1])]
    if count <= _EXACT:
        lines.append(board.everything(_exact(graph)))
    peaks = [board.measure(line)[0] for line in lines]
    best: KeptLine = lines[int(np.argmin(peaks))]
    return best.order, min(peaks)


def orders(graph: Indexed, board: Board) -> list[Ints]:
    """The given order, and one with a smaller peak if there is one."""
    given = board.everything()
    better, peak = best_order(graph, board)
    return [given.order] if peak == board.measure(given)[0] else [given.order, better]


def by_rule(graph: Indexed, rule: Rule) -> Ints:
    """List scheduling: of the nodes that are ready, the first by a rule."""
    count = len(graph.time)
    waits = [len(before) for before in graph.before]
    followers: list[list[int]] = [[] for _ in range(count)]
    for node, before in enumerate(graph.before):
        for other in before:
            followers[other].append(node)
    left = [len(readers) for readers in graph.readers]
    takes = [int(graph.workspace[n] + graph.size[graph.makes_of(n)].sum()) for n in range(count)]
    reads = [graph.reads_of(n).tolist() for n in range(count)]
    makes = [graph.makes_of(n).tolist() for n in range(count)]
    fixed, size = graph.fixed.tolist(), graph.size.tolist()
    ready = [node for node in range(count) if not waits[node]]
    order: list[int] = []
    while ready:

        def key(node: int) -> tuple[int, ...]:
            stays = sum(size[s] for s in makes[node] if fixed[s] or left[s])
            goes = sum(size[s] for s in reads[node] if not fixed[s] and left[s] == 1)
            return rule(node, takes[node], stays - goes)

        node = min(ready, key=key)
        ready.remove(node)
        order.append(node)
        for storage in reads[node]:
            left[storage] -= 1
        for follower in followers[node]:
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return np.array(order, np.int64)


def _exact(graph: Indexed) -> Ints:
    """The order with the smallest peak of all, by the smallest peak over the orders of each set of nodes."""
    count = len(graph.time)
    before = [sum(1 << other for other in some) for some in graph.before]
    maker, readers = graph.maker.tolist(), graph.readers
    takes = [int(graph.workspace[n] + graph.size[graph.makes_of(n)].sum()) for n in range(count)]

    def alive(ran: int) -> int:
        return sum(
            int(graph.size[s])
            for s in range(len(maker))
            if ran >> maker[s] & 1 and (graph.fixed[s] or any(not ran >> r & 1 for r in readers[s]))
        )

    best: dict[int, tuple[int, int]] = {0: (0, -1)}
    sets = [0]
    for _ in range(count):
        following: dict[int, tuple[int, int]] = {}
        for ran in sets:
            held = alive(ran)
            for node in range(count):
                if not ran >> node & 1 and not before[node] & ~ran:
                    peak = max(best[ran][0], held + takes[node])
                    new = ran | 1 << node
                    if new not in following or peak < following[new][0]:
                        following[new] = peak, node
        best.update(following)
        sets = list(following)
    order: list[int] = []
    ran = (1 << count) - 1
    while ran:
        node = best[ran][1]
        order.append(node)
        ran ^= 1 << node
    return np.array(order[::-1], np.int64)
