"""The plan with the smallest peak that can be found, whatever its time: what a refused budget is told.

Greedy freeing (``search``) from two orders, priced in runs and in bytes moved, and for small graphs the
search over all states (``exact``) at budgets found by bisection, which is optimal unless it gives up.
Larger graphs may have plans with a smaller peak than the one found, since the problem is NP-hard.

What it finds depends on sizes and reads alone. Work is counted, never timed, and the times of the nodes
are left out: they are measured, and differ from one capture of the same model to the next. So a budget
that was named once is named, and can be met, every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..units import parse_bytes
from .board import Board, KeptLine
from .check import simulate
from .exact import exact
from .host import Host, copies, with_host, without_host
from .indexed import Indexed, index
from .model import Graph
from .orders import orders
from .plan import Step
from .relations import relate, smallest_peak

SMALL = 24
"""Nodes up to which all states are searched."""
_STATES, _GIVEN_UP = 4_000, 8
"""States searched at one budget, five times as many with copies, and budgets at which that may fail: half a second."""
_LISTED = 2_000_000
"""Runs listed from each order."""


@dataclass(frozen=True, eq=False)
class Least:
    """The smallest peak found, the steps that have it, and the compact plan that they were found from."""

    peak: int
    steps: tuple[Step, ...]
    line: KeptLine


def smallest(graph: Graph, host: float | str | None = None) -> int:
    """The smallest budget, in bytes, that a plan was found for: the same at every call, and ``solve`` can meet it.

    With ``host``, the bytes of the host's memory that may hold what is offloaded, of plans that use them.
    """
    indexed = with_host(index(graph), None if host is None else Host(parse_bytes(host), 1.0))
    return least(indexed, smallest_peak(indexed, relate(indexed))).peak


def least(graph: Indexed, floor: int) -> Least:
    """The plan with the smallest peak found; no plan has a peak below ``floor``."""
    tried = [_shrunk(priced, floor) for priced in _prices(graph)]
    if copies(graph):
        # Greed that may copy can end above greed that may not.
        tried += [_shrunk(priced, floor) for priced in _prices(without_host(graph))]
    found = min(tried, key=lambda each: each.peak)
    return _exactly(graph, floor, found) if len(graph.time) <= SMALL else found


def _prices(graph: Indexed) -> Iterator[Indexed]:
    """What to take for the time of each node: one for all, and the bytes that it reads and makes; copies likewise."""
    may = graph.trip < np.inf
    yield replace(graph, time=np.ones(len(graph.time)), trip=np.where(may, 0.0, np.inf))
    moved = [
        1.0 + graph.size[graph.reads_of(node)].sum() + graph.size[graph.makes_of(node)].sum()
        for node in range(len(graph.time))
    ]
    yield replace(graph, time=np.array(moved, np.float64), trip=np.where(may, 2.0 * graph.size, np.inf))


def _shrunk(graph: Indexed, floor: int) -> Least:
    """By greed: as low as freeing one by one gets, then at once to somewhat less."""
    board = Board(graph, floor)
    found = []
    for order in orders(graph, board):
        line = board.everything(order)
        found.append((board.shrink(line, floor, _LISTED), line))
    peak, line = min(found, key=lambda each: each[0])
    for share in (0.9, 0.95, 0.98):
        board.budget, other = max(floor, int(share * peak)), board.everything(line.order)
        if board.relieve(other) < math.inf:
            peak, line = board.measure(other)[0], other
    steps = tuple(board.steps(line))
    return Least(simulate(graph.graph, steps, host=graph.host).peak, steps, line)


def _exactly(graph: Indexed, floor: int, found: Least) -> Least:
    """The smallest peak of any plan; where the search gives up, the smallest that is known."""
    graph = replace(graph, time=np.ones(len(graph.time)), trip=np.where(graph.trip < np.inf, 1.0, np.inf))
    states = _STATES * (5 if copies(graph) else 1)
    # Every peak is a sum of sizes, so that budgets between two multiples of this hold the same plans.
    unit = max(int(np.gcd.reduce(np.concatenate([graph.size, graph.workspace]))), 1)
    fails, given_up = -(-floor // unit) - 1, 0
    while found.peak // unit - fails > 1 and given_up < _GIVEN_UP:
        middle = (found.peak // unit + fails) // 2
        answer = exact(graph, middle * unit, states, hurry=3.0)
        if answer is None or answer[0] == math.inf:
            fails, given_up = middle, given_up + (answer is None)
        else:
            steps = tuple(answer[1])
            found = Least(simulate(graph.graph, steps, host=graph.host).peak, steps, found.line)
    return found
