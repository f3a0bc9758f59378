"""Plans in their compact form, and what can be done with them within a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .compiled import loops
from .indexed import Flags, Indexed, Ints
from .plan import Compute, Free, Step
from .unfold import room


@dataclass(eq=False)
class Line:
    """What to keep from each event on, and from where on to hold replays, for one order; see ``unfold``."""

    order: Ints
    keep: Flags
    hold: Ints
    time: float = np.inf

    def copy(self) -> Line:
        """Another one like it."""
        return Line(self.order, self.keep.copy(), self.hold.copy(), self.time)


class Board:
    """A graph, a budget, and the room that the compiled loops work in."""

    def __init__(self, graph: Indexed, budget: int, seed: int = 0, compile: bool = True) -> None:
        self.graph, self.budget = graph, budget
        self.loops = loops(compile)
        self.work = room(graph.arrays, len(graph.time))
        self.chances = np.random.default_rng(seed).random(100_003)

    def everything(self, order: Ints | None = None) -> Line:
        """The plan that keeps everything until its last use."""
        if order is None:
            order = np.arange(len(self.graph.time))
        return Line(order, np.ones(self.graph.events, np.bool_), np.zeros(self.graph.events, np.int64))

    def measure(self, line: Line) -> tuple[int, float]:
        """Peak and time of a plan; an infinite time if its runs are too many to list."""
        length = self._unfold(line)
        if length < 0:
            return -1, np.inf
        peak, _, line.time = self.loops.weigh(self.graph.arrays, line.order, length, -1, self.work)
        return int(peak), float(line.time)

    def curve(self, line: Line) -> tuple[Ints, Ints]:
        """Nodes in the order in which they run, and the bytes during each run."""
        length = self._unfold(line)
        self.loops.weigh(self.graph.arrays, line.order, length, -1, self.work)
        return self.work[0][:length].copy(), self.work[5][:length].copy()

    def relieve(self, line: Line) -> float:
        """Free until the budget holds; the time, infinite if it can't be held this way."""
        weight, spared, spent = (
            np.ones(len(self.graph.size)),
            np.zeros(self.graph.events, np.bool_),
            np.zeros(1, np.int64),
        )
        limit = 4 * self.graph.events
        state = self._state(line)
        line.time = float(self.loops.relieve(*state, self.budget, weight, spared, spent, limit, self.work))
        return line.time

    def shrink(self, line: Line, floor: int, limit: int) -> int:
        """Free as long as it lowers the peak; the peak. ``limit`` counts the runs listed on the way."""
        return int(self.loops.shrink(*self._state(line), floor, limit, self.work))

    def restore(self, line: Line) -> float:
        """Keep again what fits, the most expensive to make again for its bytes first."""
        graph = self.graph
        storage = np.concatenate([graph.reads, graph.makes])
        worth = graph.time[graph.maker[storage]] / np.maximum(graph.size[storage], 1)
        turns = np.flatnonzero(~line.keep | (line.hold > 0))
        turns = turns[np.argsort(-worth[turns], kind="stable")]
        line.time = float(self.loops.restore(*self._state(line), self.budget, line.time, turns, self.work))
        return line.time

    def improve(self, line: Line, limit: int, heat: float = 0.0) -> float:
        """Local search from a plan within the budget, until so many runs are listed."""
        chances = np.roll(self.chances, int(line.time * 1e9) % len(self.chances))
        state = self._state(line)
        line.time = float(self.loops.improve(*state, self.budget, line.time, limit, chances, heat, self.work))
        return line.time

    def steps(self, line: Line) -> list[Step]:
        """Runs, with what is no longer needed freed after each."""
        graph = self.graph
        length = self._unfold(line)
        if length < 0:
            raise ValueError("the plan has too many runs to list")
        sequence = self.work[0][:length].tolist()
        names = [node.name for node in graph.graph.nodes]
        made = [graph.makes_of(node).tolist() for node in range(len(names))]
        read = [graph.reads_of(node).tolist() for node in range(len(names))]
        fixed = graph.fixed.tolist()
        dies: list[list[int]] = [[] for _ in sequence]
        live: set[int] = set()
        for at in reversed(range(length)):
            node = sequence[at]
            dies[at] = [s for s in (*made[node], *read[node]) if not fixed[s] and s not in live]
            live.difference_update(made[node])
            live.update(read[node])
        steps: list[Step] = []
        there: set[int] = set()
        for at, node in enumerate(sequence):
            # What is there and is not read before it is made again was freed at its last use.
            steps.append(Compute(names[node]))
            there.update(made[node])
            for storage in dict.fromkeys(dies[at]):
                if storage in there:
                    there.remove(storage)
                    steps.append(Free(graph.names[storage]))
        return steps

    def _state(self, line: Line) -> tuple[object, ...]:
        return self.graph.arrays, line.order, _rank(line.order), line.keep, line.hold

    def _unfold(self, line: Line) -> int:
        return int(self.loops.unfold(*self._state(line), -1, self.work))


def _rank(order: Ints) -> Ints:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank
