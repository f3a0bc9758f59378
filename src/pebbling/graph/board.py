"""Plans in their compact form, and what can be done with them within a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .compiled import loops
from .indexed import Flags, Indexed, Ints
from .plan import Compute, Fetch, Free, Offload, Step
from .unfold import Choices, room


@dataclass(eq=False)
class KeptLine:
    """What to keep from each event on, how the rest comes back and from where on it stays; see ``unfold``."""

    order: Ints
    keep: Flags
    hold: Ints
    sent: Flags
    time: float = np.inf

    def copy(self) -> KeptLine:
        """Another one like it."""
        return KeptLine(self.order, self.keep.copy(), self.hold.copy(), self.sent.copy(), self.time)

    def same(self, other: KeptLine) -> bool:
        """Whether both decide alike."""
        mine, theirs = (self.order, self.keep, self.hold, self.sent), (other.order, other.keep, other.hold, other.sent)
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    @property
    def choices(self) -> Choices:
        """What the compiled loops take, and change in place."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(self.order))
        return Choices(self.order, rank, self.keep, self.hold, self.sent)


class Board:
    """A graph, a budget, and the room that the compiled loops work in."""

    def __init__(self, graph: Indexed, budget: int, seed: int = 0, compile: bool = True) -> None:
        self.graph, self.budget = graph, budget
        self.loops = loops(compile)
        self.work = room(graph.arrays)
        self.chances = np.random.default_rng(seed).random(100_003)

    def everything(self, order: Ints | None = None) -> KeptLine:
        """The plan that keeps everything until its last use."""
        if order is None:
            order = np.arange(len(self.graph.time))
        events = self.graph.events
        return KeptLine(order, np.ones(events, np.bool_), np.zeros(events, np.int64), np.zeros(events, np.bool_))

    def measure(self, line: KeptLine) -> tuple[int, float]:
        """Peak and time of a plan; an infinite time if its runs are too many to list."""
        length = self._unfold(line)
        if length < 0:
            return -1, np.inf
        peak, _, line.time = self.loops.weigh(self.graph.arrays, line.choices, length, -1, self.work)
        return int(peak), float(line.time)

    def curve(self, line: KeptLine) -> tuple[Ints, Ints]:
        """Nodes in the order in which they run, and the bytes during each run; fetches are left out."""
        length = self._unfold(line)
        self.loops.weigh(self.graph.arrays, line.choices, length, -1, self.work)
        sequence, taken = self.work.sequence[:length], self.work.taken[:length]
        runs = sequence < len(line.order)
        return sequence[runs], taken[runs]

    def relieve(self, line: KeptLine) -> float:
        """Free until the budget holds; the time, infinite if it can't be held this way."""
        weight, spared, spent = (
            np.ones(len(self.graph.size)),
            np.zeros(self.graph.events, np.bool_),
            np.zeros(1, np.int64),
        )
        arrays, plan, limit = self.graph.arrays, line.choices, 4 * self.graph.events
        if line.sent.any():
            self.loops.unload(arrays, plan, self.work)
        line.time = float(self.loops.relieve(arrays, plan, self.budget, weight, spared, spent, limit, self.work))
        return line.time

    def shrink(self, line: KeptLine, floor: int, limit: int) -> int:
        """Free as long as it lowers the peak; the peak. ``limit`` counts the runs listed on the way."""
        return int(self.loops.shrink(self.graph.arrays, line.choices, floor, limit, self.work))

    def restore(self, line: KeptLine) -> float:
        """Keep again what fits, the most expensive to make again for its bytes first."""
        graph = self.graph
        storage = np.concatenate([graph.reads, graph.makes])
        worth = graph.time[graph.maker[storage]] / np.maximum(graph.size[storage], 1)
        turns = np.flatnonzero(~line.keep | (line.hold > 0))
        turns = turns[np.argsort(-worth[turns], kind="stable")]
        line.time = float(self.loops.restore(graph.arrays, line.choices, self.budget, line.time, turns, self.work))
        return line.time

    def improve(self, line: KeptLine, limit: int, heat: float = 0.0) -> float:
        """Local search from a plan within the budget, until so many runs are listed."""
        chances = np.roll(self.chances, int(line.time * 1e9) % len(self.chances))
        arrays, plan = self.graph.arrays, line.choices
        line.time = float(self.loops.improve(arrays, plan, self.budget, line.time, limit, chances, heat, self.work))
        return line.time

    def steps(self, line: KeptLine) -> list[Step]:
        """Runs and fetches, with what is no longer needed freed after each, or offloaded if it is fetched again."""
        length = self._unfold(line)
        if length < 0:
            raise ValueError("the plan has too many runs to list")
        return self.freed(self.work.sequence[:length])

    def freed(self, runs: Ints) -> list[Step]:
        """The steps of runs and fetches in that order."""
        graph, sequence, length = self.graph, runs.tolist(), len(runs)
        names = [node.name for node in graph.graph.nodes]
        count, storages = len(names), range(len(graph.names))
        made = [graph.makes_of(node).tolist() for node in range(count)] + [[storage] for storage in storages]
        read = [graph.reads_of(node).tolist() for node in range(count)] + [[] for _ in storages]
        fixed = graph.fixed.tolist()
        dies: list[dict[int, bool]] = [{} for _ in sequence]
        live: set[int] = set()
        away: set[int] = set()
        for at in reversed(range(length)):
            node = sequence[at]
            dies[at] = {s: s in away for s in (*made[node], *read[node]) if not fixed[s] and s not in live}
            live.difference_update(made[node])
            live.update(read[node])
            away.difference_update(made[node], read[node])
            if node >= count:
                away.add(node - count)
        steps: list[Step] = []
        there: set[int] = set()
        for at, node in enumerate(sequence):
            # What is there and is not read before it is made again was freed at its last use.
            steps.append(Compute(names[node]) if node < count else Fetch(graph.names[node - count]))
            there.update(made[node])
            for storage, leaves in dies[at].items():
                if storage in there:
                    there.remove(storage)
                    steps.append(Offload(graph.names[storage]) if leaves else Free(graph.names[storage]))
        return steps

    def _unfold(self, line: KeptLine) -> int:
        return int(self.loops.unfold(self.graph.arrays, line.choices, -1, self.work))
