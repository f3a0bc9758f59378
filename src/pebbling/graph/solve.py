"""The best plan that can be found for a graph within a budget, with a proof of how much better any could be.

A stack from fast to exact, each stage improving on the last: greedy freeing with repair (``search``),
for small graphs a search over all states (``exact``), the linear and integer programme whose moments grow
until its bound meets the plan (``tighten``), greed for smaller budgets, dynamic programming over the chain
of blocks (``blocks``), local search, and with the rest of the time the programmes in whole numbers, for
the bound alone. It ends early when plan and bound meet. With room on the host, plans without copies are
searched for first, as far as they could be better than what greed with copies finds, and then all stages
follow with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from time import perf_counter

import numpy as np

from ..errors import BudgetError
from ..units import format_bytes, parse_bytes
from . import highs
from .blocks import chain, reversals
from .board import Board, KeptLine
from .check import simulate
from .exact import exact
from .host import Host, copies, parse_host, staying, with_host, worth_it
from .indexed import Indexed, Ints, index
from .least import SMALL, least
from .model import Graph
from .orders import orders
from .plan import Compute, GraphPlan, Step
from .relations import Relations, relate, smallest_peak, working_sets
from .reorder import annealed
from .tighten import Round, prove, tighten
from .wishes import wished

_STATES = 40_000
"""States searched for the optimum of small graphs."""
_RUNGS, _LARGE = 24, 500
"""Budgets from the smallest to the peak, of which twelve below the one asked for are tried; three for so many nodes."""
_TURNS = 4
"""Annealings in a row; there are up to three rows."""
_LISTED, _MOST_LISTED = 120_000, 50_000_000
"""Runs listed by the local search, for each node and in all: some ten seconds when compiled."""


def solve(
    graph: Graph,
    memory: float | str | None,
    time_limit: float = 30.0,
    seed: int = 0,
    on_better: Callable[[GraphPlan], None] | None = None,
    host: float | str | None = None,
    transfer: float | str | None = None,
    start: GraphPlan | None = None,
    keep: Iterable[str] = (),
    never_replay: Iterable[str] = (),
) -> GraphPlan:
    """The fastest plan found for a graph within ``memory``, in bytes or as text such as ``"2GB"``.

    With ``host``, results may be copied to that many bytes of the host's memory and back, over a link of
    ``transfer`` bytes per second, instead of being made again; nothing runs during a copy, see ``check``.

    ``on_better`` is called with every plan that improves on the last, the first one within moments.
    The same arguments give the same plan, unless ``time_limit``, in seconds, cuts the search short: for
    better plans and a higher bound, never for a first plan. Raises ``BudgetError`` where none is found, with
    the smallest budget that there is a plan for; a budget so named works, whatever the time limit.

    More memory never costs time where the plans are proven optimal. Where they are not, the search for the
    larger budget can be the less lucky one: given the plan for the smaller budget as ``start``, it returns
    that one or a faster one. A ``start`` that does not fit is a ``ScheduleError``.

    ``keep`` names nodes, or modules with all in them, whose results stay until their last use, and ``never_replay``
    those that run once, whose results may still go to the host; each as a whole name or a pattern such as
    ``"*.attn"``. A name that matches nothing is a ``ValueError``. The graph of the plan has these nodes marked as
    not replayable, so that ``check`` holds the plan to it.
    """
    asked = graph
    graph, stays = wished(graph, keep, never_replay)
    if start is not None and start.graph not in (graph, asked):
        raise ValueError(f"start is a plan for another graph, {start.graph.name or 'unnamed'}: plan this one anew")
    moved = sorted(stays.intersection(start.offloaded)) if start is not None else []
    if moved:
        raise ValueError(f"start offloads {moved[0]!r}, which keep says is to stay: plan anew, without start")
    search = _Search(graph, memory, time_limit, seed, on_better, parse_host(host, transfer), stays=stays)
    return search.run(start)


class _Search:
    def __init__(
        self,
        graph: Graph,
        memory: float | str | None,
        time_limit: float,
        seed: int,
        on_better: Callable[[GraphPlan], None] | None,
        host: Host | None = None,
        enough: float = math.inf,
        stays: frozenset[str] = frozenset(),
    ) -> None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
            raise ValueError(f"time_limit is {time_limit!r}: expected seconds, more than 0")
        self.time_limit = time_limit
        self.end = perf_counter() + time_limit
        self.graph, self.seed, self.on_better = graph, seed, on_better
        self.budget = None if memory is None else parse_bytes(memory)
        self.host, self.enough = host, enough
        self.index: Indexed = staying(with_host(index(graph), host), stays)
        self.relations: Relations = relate(self.index)
        self.floor = smallest_peak(self.index, self.relations)
        self.board = Board(self.index, self.budget or 0, seed)
        self.bound = graph.time
        self.peak = 0
        self.plan: GraphPlan | None = None
        self.lines: list[KeptLine] = []
        self.stages: list[tuple[str, float]] = []
        self.minimum: int | None = None
        self.rounds: list[Round] = []
        self.settled = False
        self.turns = 0

    @cached_property
    def orders(self) -> list[Ints]:
        """The given order, and one with a smaller peak if there is one."""
        return orders(self.index, self.board)

    def run(self, start: GraphPlan | None = None) -> GraphPlan:
        """All stages, until the bound is met or the time is up."""
        everything = self.board.everything()
        self.peak, _ = self.board.measure(everything)
        if self.budget is None or self.peak <= self.budget:
            return self._take("everything kept", everything)
        if start is not None:
            self._accept("given plan", start.steps)
        self._first()
        # Only now, since loops are compiled on the way to a first plan where that was never done before.
        self.end = perf_counter() + self.time_limit
        for stage in self._forward_only() or (
            self._without_copies,
            self._exactly,
            self._tighten,
            self._ladder,
            self._blocks,
            self._local_search,
            self._prove,
        ):
            if self.plan is not None and self._done():
                break
            stage()
        assert self.plan is not None
        return self._final()

    def _without_copies(self) -> None:
        """Plans that replay alone, until they are proven no better; and no more copies that can't be worth it."""
        if self.host is None:
            return
        assert self.plan is not None
        search = _Search(self.graph, self.budget, max(self._left() / 2, 1e-9), self.seed, None, enough=self.plan.time)
        try:
            plan = search.run()
        except BudgetError:
            plan = None
        if plan is not None:
            if plan.time < self.plan.time * (1 - 1e-9):
                self.stages.extend((f"without copies: {stage}", overhead) for stage, overhead in plan.stages[:-1])
                self._accept(f"without copies: {plan.stages[-1][0]}", plan.steps)
            self.lines = sorted([*self.lines, *search.lines], key=lambda line: line.time)[:4]
        self.index = worth_it(self.index, self.plan.time - self.graph.time)
        self.board = Board(self.index, self.board.budget, self.seed)
        self.time_limit = max(self._left(), 1e-9)
        if plan is not None and not copies(self.index):
            self._raise_bound(search.bound)
            self.settled = True

    def _first(self) -> None:
        """A plan by greed alone; else from the one with the smallest peak; else none."""
        assert self.budget is not None
        if self.budget >= self.floor:
            self._repaired("greedy", self.board.everything())
            for order in self.orders[1:]:
                self._repaired("another order", self.board.everything(order))
            if self.plan is None and self._forward_only():
                self._reorder()
            if self.plan is not None:
                return
        found = least(self.index, self.floor)
        self.minimum = found.peak
        if self.minimum > self.budget:
            raise BudgetError(self._too_small(self.minimum), minimum=self.minimum)
        self._repaired("smallest peak", found.line)
        if self.plan is None:
            self._accept("smallest peak", found.steps)

    def _repaired(self, stage: str, line: KeptLine) -> None:
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

    def _forward_only(self) -> tuple[Callable[[], None], ...]:
        """The stages for a graph without a backward pass, where orders matter most; none for others."""
        if self.index.backward.any() or copies(self.index):
            return ()
        again = () if len(self.graph) <= SMALL else (self._reorder,)
        return (self._exactly, *again, self._tighten, *again, self._prove, *again)

    def _reorder(self) -> None:
        """Orders and replays at once: twice from the given order, then from the best plan, hot every time."""
        assert self.budget is not None
        number = {node.name: i for i, node in enumerate(self.graph.nodes)}
        given = self.board.everything().order
        late = self.end - 0.1 * self.time_limit
        for _ in range(_TURNS):
            self.turns += 1
            start = given
            if self.turns > 2 and self.plan is not None:
                start = np.array([number[step.node] for step in self.plan.steps if isinstance(step, Compute)], np.int64)
            seed = self.seed + self.turns
            for time, runs in annealed(self.board, start, seed, lambda: self.plan is None or perf_counter() < late):
                if self.plan is None or time < self.plan.time * (1 - 1e-9):
                    self._accept("annealing", tuple(self.board.freed(runs)))
            if self.plan is not None and (self._done() or perf_counter() >= late):
                return
            if self.plan is None and self.turns >= _TURNS:
                return

    def _tighten(self) -> None:
        """Bounds from the programme, and plans from its solutions."""
        if not highs.available():
            self.stages.append(("no bound, for lack of HiGHS: pip install 'pebbling[solver]'", self._overhead()))
            return
        for each in tighten(self.board, self.relations, 12, self._left() / 2, self.seed):
            if each.bound < math.inf:
                self.rounds.append(each)
                self._raise_bound(each.bound)
                for order in self.orders:
                    self._repaired("integer programme", each.suggest(order))
            if self._done() or self._left() < 0.65 * self.time_limit:
                return

    def _prove(self) -> None:
        """Higher bounds from the same programmes in whole numbers, in a third of the time."""
        end = perf_counter() + min(self._left(), self.time_limit / 3)
        for bound in prove(self.rounds, lambda: end - perf_counter(), self.seed):
            if bound < math.inf:
                self._raise_bound(bound)
            if self._done():
                return

    def _ladder(self) -> None:
        """Plans by greed for smaller budgets, with what the rest has room for kept again."""
        board, budget = self.board, self.board.budget
        rungs = np.linspace(self.floor, self.peak, _RUNGS).astype(np.int64)
        below = [int(each) for each in rungs[::-1] if each < budget]
        for rung in below[: 3 if len(self.graph) > _LARGE else 12]:
            for order in self.orders:
                if self._done() or self._left() < 0.55 * self.time_limit:
                    return
                board.budget = rung
                line = board.everything(order)
                found = board.relieve(line)
                board.budget = budget
                if found < math.inf:
                    board.restore(line)
                    self._take("smaller budget", line)

    def _blocks(self) -> None:
        """Plans from the chain of blocks."""
        for order in self.orders:
            if self._left() < 0.45 * self.time_limit:
                return
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
        """From the best few, in turns, until the work is used up; a plan without a compact form is no start.

        Every other turn is for a somewhat smaller budget, whose plans leave room to keep other things again.
        """
        if not self.lines:
            return
        board, budget = self.board, self.board.budget
        portion = min(_LISTED * len(self.graph), _MOST_LISTED) // (24 if board.loops.fast else 1200)
        took = 0.0
        for turn in range(24):
            if self._done() or self._left() < took:
                return
            begun = perf_counter()
            start = self.lines[turn // 2 % len(self.lines)].copy()
            board.budget = budget - (turn % 2) * (1 + turn // 8) * budget // 50
            if board.relieve(start) < math.inf:
                board.improve(start, portion, heat=0.003 * self.graph.time * (turn % 3))
                board.budget = budget
                board.restore(start)
                self._take("local search", start)
            board.budget = budget
            took = 1.5 * (perf_counter() - begun)

    def _take(self, stage: str, line: KeptLine) -> GraphPlan:
        """Keep a plan if it is better than the best so far."""
        if not any(line.same(other) for other in self.lines):
            self.lines.append(line.copy())
            self.lines.sort(key=lambda each: each.time)
            del self.lines[4:]
        if self.plan is None or line.time < self.plan.time * (1 - 1e-9):
            self._accept(stage, tuple(self.board.steps(line)))
        assert self.plan is not None
        return self.plan

    def _accept(self, stage: str, steps: tuple[Step, ...]) -> None:
        transfer, room = (None, None) if self.host is None else (self.host.transfer, self.host.bytes)
        cost = simulate(self.graph, steps, self.budget, transfer, room or 0)
        overhead = max(cost.overhead, 0.0)
        if self.stages and self.stages[-1][0] == stage:
            self.stages.pop()
        self.stages.append((stage, overhead))
        self.plan = GraphPlan(
            self.graph, steps, self.budget, cost.peak, overhead, host=room, transfer=transfer, host_peak=cost.host_peak
        )
        self.plan = self._final()
        if self.on_better is not None:
            self.on_better(self.plan)

    def _final(self) -> GraphPlan:
        assert self.plan is not None
        once = self.graph.time
        bound = min(max((self.bound - once) / once, 0.0) if once else 0.0, self.plan.overhead)
        return replace(self.plan, bound=bound, minimum=self.minimum, stages=tuple(self.stages))

    def _raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)

    def _overhead(self) -> float:
        return self.plan.overhead if self.plan is not None else math.inf

    def _left(self) -> float:
        return self.end - perf_counter()

    def _done(self) -> bool:
        if self.plan is not None and (self._final().optimal or self.bound >= self.enough):
            return True
        return self.settled or self._left() <= 0
