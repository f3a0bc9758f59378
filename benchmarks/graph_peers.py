"""What others would do with the same graph and the same bytes, on the same machine of pebbling.graph.

Each function gives the overhead of the best plan of its kind whose simulated peak is within the budget,
or ``None`` if none of its plans fits. Replays are taken to be on demand for all of them, and results
freed after their last use, which is more than some of the peers do.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from pebbling.graph import Compute, Free, Graph, Node, Step, simulate
from pebbling.graph.blocks import chain
from pebbling.graph.board import Board, KeptLine
from pebbling.graph.indexed import Indexed, index

FOLDER = Path(__file__).parent / "graphs"


def _overhead(graph: Graph, board: Board, line: KeptLine, budget: int) -> float | None:
    peak, time = board.measure(line)
    return time / graph.time - 1 if np.isfinite(time) and peak <= budget else None


def _least(found: list[float | None]) -> float | None:
    return min((each for each in found if each is not None), default=None)


def segments(graph: Graph, budget: int) -> float | None:
    """torch.utils.checkpoint on segments: the best of every number of segments and of how many are checkpointed.

    The input of a checkpointed segment is kept; the rest of it is made again when its backward pass
    begins, and held until it ends.
    """
    indexed = index(graph)
    board = Board(indexed, budget)
    order = np.arange(len(graph))
    links = chain(indexed, order)
    found = []
    for size in range(1, len(links.cuts)):
        cuts = [*links.cuts[:-1:size], links.cuts[-1]]
        for count in sorted({round(share * (len(cuts) - 1)) for share in (0.25, 0.5, 0.75, 0.9, 1.0)} - {0}):
            found.append(_overhead(graph, board, _checkpointed(indexed, board, links, cuts[: count + 1]), budget))
    return _least(found)


def _checkpointed(graph: Indexed, board: Board, links, cuts: list[int]) -> KeptLine:
    line = board.everything(links.order)
    crossing = {int(s) for cut in cuts if cut for s in _crossing(graph, cut)}
    for start, stop in pairwise(cuts):
        inside = np.flatnonzero(graph.movable & (graph.maker >= start) & (graph.maker < stop))
        readers = [p for s in inside for p in links.uses[s][2]]
        begin = min(readers, default=len(links.order))
        for storage in inside:
            if int(storage) not in crossing:
                event = links.uses[storage][0]
                line.keep[event] = False
                line.hold[event] = begin
    return line


def _crossing(graph: Indexed, cut: int) -> list[int]:
    return [
        s
        for s in np.flatnonzero(graph.movable & (graph.maker < cut))
        if any(r >= cut and not graph.backward[r] for r in graph.readers[s])
    ]


def knapsack(graph: Graph, budget: int) -> float | None:
    """torch's own activation_memory_budget, solved by its knapsack, at every value that its partition was recorded for.

    See ``graph_models.py --partitions``. Nodes run in torch's order, and results are freed after their
    last use.
    """
    content = json.loads(gzip.decompress((FOLDER / f"{graph.name}.torch.json.gz").read_bytes()))
    found = []
    for runs in content.values():
        cost = simulate(graph, _steps(graph, [graph.nodes[i] for i in runs]))
        found.append(cost.overhead if cost.peak <= budget else None)
    return _least(found)


def _steps(graph: Graph, runs: list[Node]) -> list[Step]:
    """Runs with what is not read again before it is made again freed after each."""
    needed: set[str] = set()
    freed: list[list[str]] = []
    for node in reversed(runs):
        used = dict.fromkeys([*(storage.name for storage in node.makes), *node.reads])
        freed.append([name for name in used if name not in needed and name not in graph.kept])
        needed.difference_update(storage.name for storage in node.makes)
        needed.update(node.reads)
    steps: list[Step] = []
    there: set[str] = set()
    for node, last in zip(runs, reversed(freed), strict=True):
        steps.append(Compute(node.name))
        there.update(storage.name for storage in node.makes)
        steps += [Free(name) for name in last if name in there]
        there.difference_update(last)
    return steps


def dtr(graph: Graph, budget: int) -> float | None:
    """Dynamic tensor rematerialisation (Kirisame et al., 2021): evict the least cost for bytes and staleness, online.

    The cost of a result counts its neighbours that are evicted, as in the paper; what no operation of
    the given order reads again is evicted at once.
    """
    return _Dtr(index(graph), budget).run(graph)


class _Dtr:
    def __init__(self, graph: Indexed, budget: int) -> None:
        self.graph, self.budget = graph, budget
        self.there: set[int] = set()
        self.fixed: set[int] = set()
        self.live = 0
        self.clock = self.spent = 0.0
        self.used: dict[int, float] = {}
        self.left = [len(readers) for readers in graph.readers]
        self.locked: set[int] = set()
        self.readers = graph.readers
        self.runs = 0

    def run(self, graph: Graph) -> float | None:
        try:
            for node in range(len(graph)):
                self._compute(node, 0)
                for storage in self.graph.reads_of(node).tolist():
                    self.left[storage] -= 1
                for storage in [s for s in self.there if not self.left[s] and not self.graph.fixed[s]]:
                    self._evict(storage)
        except (MemoryError, RecursionError):
            return None
        return self.spent / graph.time - 1

    def _compute(self, node: int, depth: int) -> None:
        graph = self.graph
        self.runs += 1
        if depth > 500 or self.runs > 30 * len(graph.time):
            raise RecursionError
        reads = graph.reads_of(node).tolist()
        mine = [s for s in reads if s not in self.locked]
        self.locked.update(mine)
        for storage in reads:
            if storage not in self.there:
                self._compute(int(graph.maker[storage]), depth + 1)
        made = graph.makes_of(node).tolist()
        needs = int(graph.workspace[node]) + sum(int(graph.size[s]) for s in made)
        while self.live + needs > self.budget:
            candidates = [s for s in self.there if graph.movable[s] and s not in self.locked and graph.size[s]]
            if not candidates:
                raise MemoryError
            self._evict(min(candidates, key=self._price))
        self.spent += graph.time[node]
        self.clock += graph.time[node] + 1e-12
        for storage in made:
            if storage not in self.there:
                self.there.add(storage)
                self.live += int(graph.size[storage])
            self.used[storage] = self.clock
        for storage in reads:
            self.used[storage] = self.clock
        self.locked.difference_update(mine)
        # Byproducts of a replay that nothing waits for.
        for storage in made:
            if not graph.fixed[storage] and not self.left[storage] and storage not in self.locked and depth:
                self._evict(storage)

    def _evict(self, storage: int) -> None:
        self.there.discard(storage)
        self.live -= int(self.graph.size[storage])

    def _price(self, storage: int) -> tuple[float, int]:
        graph = self.graph
        seen, stack, cost = {storage}, [storage], graph.time[graph.maker[storage]]
        while stack:
            at = stack.pop()
            around = graph.reads_of(int(graph.maker[at])).tolist()
            for reader in self.readers[at]:
                if not graph.backward[reader]:
                    around += graph.makes_of(reader).tolist()
            for other in around:
                if other not in seen and other not in self.there and graph.movable[other] and other in self.used:
                    seen.add(other)
                    cost += graph.time[graph.maker[other]]
                    stack.append(other)
        stale = self.clock - self.used[storage] + 1e-12
        return cost / (graph.size[storage] * stale), storage
