"""Plans by annealing, with the temperatures and prices that suit a graph; see ``anneal``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .board import Board
from .indexed import Ints
from .timeline import timeline, wires

_SLOTS, _RUNS = 2, 8
"""Slots for each node of the graph, and runs of one node."""
_CHANGES, _PLAIN = 4000, 1000
"""Changes tried for each node, some three seconds for a thousand nodes when compiled; that part of them if not."""
_HOT, _COLD = 6.0, 0.01
"""Temperatures, at first and in the end, in mean times of a node."""
_DEAR = 4.0
"""Mean times of a node that an excess of the mean size of a result costs in one slot, in the end."""
_PORTION = 200_000
"""Changes between two looks at the clock."""


def annealed(board: Board, start: Ints, seed: int, left: Callable[[], bool]) -> Iterator[tuple[float, Ints]]:
    """Better and better plans, as runs in order, from one that may be over the budget, while there is time ``left``.

    Of a start within the budget only plans that are better than it.
    """
    graph, loops = board.graph, board.loops
    count = len(graph.time)
    if not len(graph.reads) or np.bincount(start).max() > _RUNS:
        return
    nodes = wires(graph)
    mean, size = float(graph.time.mean()) or 1.0, float(graph.size.mean()) or 1.0
    line = timeline(nodes, max(_SLOTS * count, 2 * len(start)), _RUNS, 7919 * seed + 12)
    sequence, found = np.empty(len(line.slots), np.int64), np.empty(len(line.slots), np.int64)
    sequence[: len(start)] = start
    loops.lay(nodes, line, sequence, len(start), board.budget)
    best = float(graph.time[start].sum()) if line.over[0] == 0 else np.inf
    once = float(graph.time.sum())
    changes = max(_CHANGES * count // (1 if loops.fast else _PLAIN), 1)
    for at in range(0, changes, _PORTION):
        if best <= once * (1 + 1e-9) or not left():
            return
        best, length = loops.anneal(
            nodes, line, board.budget, at, min(at + _PORTION, changes), changes,
            _HOT * mean, _COLD * mean, _DEAR * mean / size, best, sequence, found,
        )  # fmt: skip
        if length:
            yield best, found[:length].copy()
