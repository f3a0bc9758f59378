"""The best plan that can be found for a graph within a budget, with a proof of how much better any could be.

A stack from fast to exact, each stage improving on the last: greedy freeing with repair (``search``),
the linear and integer programme whose moments grow until its bound meets the plan (``tighten``),
dynamic programming over the chain of blocks (``blocks``), local search with the rest of the time, and
for small graphs a search over all states (``exact``). It ends early when plan and bound meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from time import perf_counter

import numpy as np

from ..errors import BudgetError
from ..units import format_bytes, parse_bytes
from . import highs
from .blocks import chain, reversals
from .board import Board, Line
from .check import simulate
from .exact import exact
from .indexed import Indexed, Ints, index
from .least import SMALL, least
from .model import Graph
from .orders import orders
from .plan import GraphPlan, Step
from .relations import Relations, relate, smallest_peak, working_sets
from .tighten import tighten

_STATES = 40_000
"""States searched for the optimum of small graphs."""
_LISTED, _MOST_LISTED = 120_000, 50_000_000
"""Runs listed by the local search, for each node and in all: some ten seconds when compiled."""


def solve(
    graph: Graph,
    memory: float | str | None,
    time_limit: float = 30.0,
    seed: int = 0,
    on_better: Callable[[GraphPlan], None] | None = None,
) -> GraphPlan:
    """The fastest plan found for a graph within ``memory``, in bytes or as text such as ``"2GB"``.

    ``on_better`` is called with every plan that improves on the last, the first one within moments.
    The same arguments give the same plan, unless ``time_limit``, in seconds, cuts the search short: for
    better plans, never for a first one. Raises ``BudgetError`` where none is found, with the smallest
    budget that there is a plan for; a budget so named works, whatever the time limit.
    """
    search = _Search(graph, memory, time_limit, seed, on_better)
    return search.run()


class _Search:
    def __init__(
        self,
        graph: Graph,
        memory: float | str | None,
        time_limit: float,
        seed: int,
        on_better: Callable[[GraphPlan], None] | None,
    ) -> None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
            raise ValueError(f"time_limit is {time_limit!r}: expected seconds, more than 0")
        self.time_limit = time_limit
        self.end = perf_counter() + time_limit
        self.graph, self.seed, self.on_better = graph, seed, on_better
        self.budget = None if memory is None else parse_bytes(memory)
        self.index: Indexed = index(graph)
        self.relations: Relations = relate(self.index)
        self.floor = smallest_peak(self.index, self.relations)
        self.board = Board(self.index, self.budget or 0, seed)
        self.bound = graph.time
        self.plan: GraphPlan | None = None
        self.lines: list[Line] = []
        self.stages: list[tuple[str, float]] = []
        self.minimum: int | None = None

    @cached_property
    def orders(self) -> list[Ints]:
        """The given order, and one with a smaller peak if there is one."""
        return orders(self.index, self.board)

    def run(self) -> GraphPlan:
        """All stages, until the bound is met or the time is up."""
        board = self.board
        everything = board.everything()
        peak, _ = board.measure(everything)
        if self.budget is None or peak <= self.budget:
            return self._take("everything kept", everything)
        self._first()
        for stage in (self._exactly, self._tighten, self._blocks, self._local_search):
            if self.plan is not None and self._done():
                break
            stage()
        assert self.plan is not None
        return self._final()

    def _first(self) -> None:
        """A plan by greed alone; else from the one with the smallest peak; else none."""
        assert self.budget is not None
        if self.budget >= self.floor:
            self._repaired("greedy", self.board.everything())
            for order in self.orders[1:]:
                self._repaired("another order", self.board.everything(order))
            if self.plan is not None:
                return
        found = least(self.index, self.floor)
        self.minimum = found.peak
        if self.minimum > self.budget:
            raise BudgetError(self._too_small(self.minimum), minimum=self.minimum)
        self._repaired("smallest peak", found.line)
        if self.plan is None:
            self._accept("smallest peak", found.steps)

    def _repaired(self, stage: str, line: Line) -> None:
        """Free until the budget holds, keep again what fits, and take the plan if there is one."""
        if self.board.relieve(line) < math.inf:
            self.board.restore(line)
            self._take(stage, line)

    def _too_small(self, minimum: int) -> str:
        graph, sets = self.index, working_sets(self.index, self.relations)
        assert self.budget is not None
        text = f"{format_bytes(self.budget)} ({self.budget} bytes) can't hold this graph: "
        worst = int(np.argmax(sets))
        outputs = int(graph.size[graph.fixed].sum())
        if outputs >= sets[worst]:
            text += f"its outputs alone take {format_bytes(outputs)}. "
        else:
            made = [*graph.makes_of(worst), *graph.reads_of(worst)]
            named = sorted(made, key=lambda s: -graph.size[s])[:3]
            tensors = ", ".join(f"{graph.names[s]} ({format_bytes(graph.size[s])})" for s in named)
            text += f"node {self.graph.nodes[worst].name!r} takes {format_bytes(int(sets[worst]))}, with {tensors}. "
        return text + f"The smallest budget that a plan was found for is {format_bytes(minimum)} ({minimum} bytes)."

    def _tighten(self) -> None:
        """Bounds from the programme, and plans from its solutions."""
        if not highs.available():
            self.stages.append(("no bound, for lack of HiGHS: pip install 'pebbling[solver]'", self._overhead()))
            return
        for bound, suggest in tighten(self.board, self.relations, 12, self._left() / 2, self.seed):
            if bound < math.inf:
                self._raise_bound(bound)
                for order in self.orders:
                    self._repaired("integer programme", suggest(order))
            if self._done() or self._left() < 0.65 * self.time_limit:
                return

    def _blocks(self) -> None:
        """Plans from the chain of blocks."""
        for order in self.orders:
            for line in reversals(self.board, chain(self.index, order)):
                self._repaired("blocks", line)
                if self._done() or self._left() < 0.45 * self.time_limit:
                    return

    def _exactly(self) -> None:
        """The optimum, of graphs that are small enough."""
        if len(self.graph) > SMALL:
            return
        found = exact(self.index, self.board.budget, _STATES)
        if found is not None:
            time, steps = found
            self._raise_bound(time)
            if self.plan is None or time < self.plan.time * (1 - 1e-9):
                self._accept("exact", tuple(steps))

    def _local_search(self) -> None:
        """From the best two, in turns, until the work is used up; a plan without a compact form is no start."""
        if not self.lines:
            return
        portion = min(_LISTED * len(self.graph), _MOST_LISTED) // (24 if self.board.loops.fast else 1200)
        took = 0.0
        for turn in range(24):
            if self._done() or self._left() < took:
                return
            begun = perf_counter()
            start = self.lines[turn % min(2, len(self.lines))].copy()
            self.board.improve(start, portion, heat=0.003 * self.graph.time * (turn % 3))
            self.board.restore(start)
            self._take("local search", start)
            took = 1.5 * (perf_counter() - begun)

    def _take(self, stage: str, line: Line) -> GraphPlan:
        """Keep a plan if it is better than the best so far."""
        self.lines.append(line.copy())
        self.lines.sort(key=lambda each: each.time)
        del self.lines[4:]
        if self.plan is None or line.time < self.plan.time * (1 - 1e-9):
            self._accept(stage, tuple(self.board.steps(line)))
        assert self.plan is not None
        return self.plan

    def _accept(self, stage: str, steps: tuple[Step, ...]) -> None:
        cost = simulate(self.graph, steps, self.budget)
        overhead = max(cost.overhead, 0.0)
        if self.stages and self.stages[-1][0] == stage:
            self.stages.pop()
        self.stages.append((stage, overhead))
        self.plan = GraphPlan(self.graph, steps, self.budget, cost.peak, overhead)
        self.plan = self._final()
        if self.on_better is not None:
            self.on_better(self.plan)

    def _final(self) -> GraphPlan:
        assert self.plan is not None
        once = self.graph.time
        bound = min(max((self.bound - once) / once, 0.0) if once else 0.0, self.plan.overhead)
        return GraphPlan(
            self.graph,
            self.plan.steps,
            self.budget,
            self.plan.peak,
            self.plan.overhead,
            bound,
            self.minimum,
            tuple(self.stages),
        )

    def _raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)

    def _overhead(self) -> float:
        return self.plan.overhead if self.plan is not None else math.inf

    def _left(self) -> float:
        return self.end - perf_counter()

    def _done(self) -> bool:
        return (self.plan is not None and self._final().optimal) or self._left() <= 0
