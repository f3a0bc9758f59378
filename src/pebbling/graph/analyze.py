"""What a graph takes and why: live bytes over time, what makes the peak, what is cheap to make again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..units import format_bytes, format_seconds, parse_bytes
from . import highs
from .blocks import chain
from .board import Board
from .indexed import Indexed, index
from .least import smallest
from .model import Graph
from .orders import best_order
from .relations import relate, smallest_peak, working_sets
from .tighten import tighten


@dataclass(frozen=True)
class Saved:
    """What the forward pass makes and the backward pass reads, and the time to make it again from the rest."""

    name: str
    bytes: int
    time: float

    @property
    def price(self) -> float:
        """Time for each byte that dropping it frees."""
        return self.time / self.bytes if self.bytes else float("inf")


@dataclass(frozen=True)
class Analysis:
    """What ``analyze`` found; prints as a table.

    ``curve`` is the bytes taken during each node in the given order, everything being kept until its
    last use, ``peak`` the most of it and ``worst`` the node there; ``at_peak`` lists the storages that
    make it, largest first. ``cuts`` are positions in the order where few bytes cross, and ``blocks``
    says whether the forward pass is a chain of the blocks between them.
    """

    graph: Graph
    curve: tuple[int, ...]
    peak: int
    worst: str
    at_peak: tuple[tuple[str, int], ...]
    saved: tuple[Saved, ...]
    """What backward reads from forward, the cheapest bytes first."""
    order: tuple[str, ...]
    """Names of the nodes in the order with the smallest peak found."""
    order_peak: int
    lower_peak: int
    """No plan, with whatever order and replays, has a smaller peak than this."""
    lower_at: str
    cuts: tuple[int, ...]
    blocks: bool

    @cached_property
    def smallest(self) -> int:
        """The smallest peak that a plan with replays was found for."""
        return smallest(self.graph)

    def bound(self, memory: float | str, time_limit: float = 10.0) -> float:
        """A lower bound on the overhead of any plan within a budget; infinite if there is none."""
        budget = parse_bytes(memory)
        if budget < self.lower_peak:
            return float("inf")
        if budget >= self.order_peak or not highs.available():
            return 0.0
        graph = index(self.graph)
        bounds = [each.bound for each in tighten(Board(graph, budget), relate(graph), 6, time_limit, 0)]
        return max([0.0, *((time - self.graph.time) / (self.graph.time or 1.0) for time in bounds)])

    def __str__(self) -> str:
        graph = self.graph
        backward = sum(node.backward for node in graph.nodes)
        rows = [
            ("graph", f"{graph.name or 'unnamed'}: {len(graph) - backward} forward and {backward} backward operations"),
            ("time", f"{format_seconds(graph.time)}, every operation once"),
            ("peak", f"{format_bytes(self.peak)} at {self.worst}"),
            *(("", f"{format_bytes(size):>10}  {name}") for name, size in self.at_peak[:6]),
            ("better order", f"{format_bytes(self.order_peak)}" if self.order_peak < self.peak else "none found"),
            ("no plan below", f"{format_bytes(self.lower_peak)}, at {self.lower_at}"),
            ("blocks", f"a chain, {len(self.cuts) + 1} blocks" if self.blocks else "no chain of blocks"),
            ("saved", f"{format_bytes(sum(each.bytes for each in self.saved))} in {len(self.saved)} storages"),
        ]
        for title, some in (("cheapest", self.saved[:3]), ("dearest", self.saved[::-1][:3])):
            for each in some:
                text = f"{format_bytes(each.bytes):>10}  {each.name}, {format_seconds(each.time)} to make again"
                rows.append((title, text))
                title = ""
        return "\n".join(f"{name:<14}{text}" for name, text in rows)


def analyze(graph: Graph) -> Analysis:
    """Where the memory of a graph goes, in its given order, and what could be done about it.

    >>> from pebbling.graph import Graph, Node, Storage
    >>> nodes = [
    ...     Node("linear", ("x",), (Storage("y", 8),), time=1.0),
    ...     Node("relu", ("y",), (Storage("z", 8),), time=0.1),
    ... ]
    >>> analyze(Graph(nodes, [Storage("x", 4, held=True)], ["z"])).curve
    (8, 16)
    """
    indexed = index(graph)
    board = Board(indexed, 0, compile=len(graph) > 200)
    line = board.everything()
    sequence, taken = board.curve(line)
    worst = int(np.argmax(taken)) if len(taken) else 0
    board.loops.weigh(indexed.arrays, line.choices, len(sequence), worst, board.work)
    there = _there(indexed, board, worst)
    order, order_peak = best_order(indexed, board)
    relations = relate(indexed)
    sets = working_sets(indexed, relations)
    lower = smallest_peak(indexed, relations)
    links = chain(indexed, line.order) if indexed.early.any() else None
    names = [node.name for node in graph.nodes]
    at_end = not len(sets) or lower > sets.max(initial=0)
    return Analysis(
        graph,
        tuple(int(each) for each in taken),
        int(taken.max(initial=0)),
        names[worst] if names else "",
        tuple(sorted(((indexed.names[s], int(indexed.size[s])) for s in there), key=lambda each: (-each[1], each[0]))),
        _saved(indexed),
        tuple(names[node] for node in order),
        order_peak,
        lower,
        "the end, with all outputs" if at_end else names[int(np.argmax(sets))],
        () if links is None else links.narrow,
        links is not None and links.is_chain,
    )


def _there(graph: Indexed, board: Board, worst: int) -> set[int]:
    """Storages that are there during a run of the given order, of which ``weigh`` has just marked the live ones."""
    if not len(graph.time):
        return set()
    found = {int(s) for s in np.flatnonzero(board.work.live)} | set(graph.makes_of(worst).tolist())
    return found | {s for s in range(len(graph.size)) if graph.fixed[s] and graph.maker[s] < worst}


def _saved(graph: Indexed) -> tuple[Saved, ...]:
    """What it takes to make each saved storage again, from the other saved ones and what never goes."""
    saved = {
        s for s, readers in enumerate(graph.readers) if graph.movable[s] and any(graph.backward[r] for r in readers)
    }
    found = []
    for storage in saved:
        nodes, stack = {int(graph.maker[storage])}, [int(graph.maker[storage])]
        while stack:
            for other in graph.reads_of(stack.pop()).tolist():
                maker = int(graph.maker[other])
                if graph.movable[other] and other not in saved and maker not in nodes:
                    nodes.add(maker)
                    stack.append(maker)
        found.append(Saved(graph.names[storage], int(graph.size[storage]), float(graph.time[sorted(nodes)].sum())))
    return tuple(sorted(found, key=lambda each: (each.price, each.name)))
