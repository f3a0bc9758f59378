"""Bounds that rise and plans that fall: the linear programme, with moments added where its plan is over budget.

Starts with the one moment at which a run without replays takes the most. The solution, unfolded on
demand, shows at which other moments it would break the budget; those join the programme, and it is
solved again. When its plan fits everywhere it is optimal, and the bound says so. ``prove`` solves the same
programmes in whole numbers, which takes longer and lifts the bound where replays depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from . import highs
from .board import Board, KeptLine
from .indexed import Flags, Floats, Indexed, Ints
from .linear import Programme
from .programme import programme
from .relations import Relations

_SIZE = 4500
"""Storages times moments up to which a programme is solved, those that may be copied twice: a second or so."""
_STALE = 3
"""Rounds without a better bound after which no more moments are added."""
_CANDIDATES = 6_000_000
"""Where there is no backward pass, the first moment is the best of so many over the nodes squared, or of 12."""
_COLUMNS, _NODES = 3000, 100
"""Variables up to which a programme is solved in whole numbers, and nodes of branch and cut: some ten seconds."""


@dataclass(frozen=True, eq=False)
class Round:
    """A lower bound on the time of any plan, and the programme and its solution that it comes from."""

    board: Board
    bound: float
    problem: Programme
    values: Floats | None

    def suggest(self, order: Ints) -> KeptLine:
        """The plan that the solution suggests for an order; it may break the budget."""
        if self.values is None:
            return self.board.everything(order)
        return suggested(self.board, self.problem, self.values, order)


def tighten(board: Board, relations: Relations, rounds: int, seconds: float, seed: int) -> Iterator[Round]:
    """Rounds with more and more moments. An infinite bound proves that there is no plan within the budget."""
    graph = board.graph
    everything = board.everything()
    sequence, taken = board.curve(everything)
    points = _first(board, sequence, taken, relations, seconds, seed)
    best, stale = -np.inf, 0
    size = graph.movable.sum() + (graph.trip < np.inf).sum()
    for _ in range(rounds):
        if not points or (len(points) > 2 and len(points) * size > _SIZE) or stale > _STALE:
            return
        problem = programme(graph, relations, points, max(board.budget, 1))
        answer = highs.relaxed(problem, seconds, seed)
        if answer.infeasible:
            yield Round(board, np.inf, problem, None)
            return
        bound, values = answer.bound, answer.values
        if len(points) == 1:
            better = highs.whole(problem, 0.2 * seconds, seed, 1000)
            bound = max(bound, better.bound)
            values = values if better.values is None else better.values
        if values is None:
            return
        found = Round(board, _time(graph, bound), problem, values)
        line = found.suggest(everything.order)
        best, stale = (bound, 0) if bound > best + 1e-7 else (best, stale + 1)
        yield found
        if board.measure(line)[0] < 0:
            return
        sequence, taken = board.curve(line)
        more = _add(points, sequence, taken, board.budget, _moments(graph, sequence), relations, 2)
        if more == points:
            return
        points = more


def prove(rounds: list[Round], left: Callable[[], float], seed: int) -> Iterator[float]:
    """Bounds from the programmes of those rounds in whole numbers, as far as they are small enough.

    From few moments to many, in the seconds that ``left`` gives.
    """
    for each in rounds:
        problem = each.problem
        if len(problem.points) > 1 and len(problem.price) <= _COLUMNS and left() > 0:
            answer = highs.whole(problem.coarse(), left(), seed, _NODES)
            yield np.inf if answer.infeasible else _time(each.board.graph, answer.bound)


def _time(graph: Indexed, bound: float) -> float:
    """From the price of a programme to the time of a plan, with the nodes that run once."""
    once = graph.graph.time - sum(n.time for n in graph.graph.nodes if n.replayable and not n.backward)
    return bound * (graph.graph.time or 1.0) + once


def _first(
    board: Board, sequence: Ints, taken: Ints, relations: Relations, seconds: float, seed: int
) -> tuple[int, ...]:
    """The one moment whose programme has the highest bound, of those that are worst and of which most is certain."""
    graph = board.graph
    moments = _moments(graph, sequence)
    order = [int(sequence[at]) for at in np.argsort(-taken, kind="stable") if moments[at]]
    certain = relations.ancestors.sum(0) + relations.ancestors.sum(1)
    worst = order[: max(8, len(order) // 20)]
    candidates = dict.fromkeys([*worst[:3], *sorted(worst, key=lambda node: -certain[node])[:4]])
    if not graph.backward.any():
        few = max(12, _CANDIDATES // len(graph.time) ** 2)
        candidates = dict.fromkeys(np.argsort(-_crossing(graph, relations), kind="stable")[:few].tolist())
    budget = max(board.budget, 1)
    bounds = {
        node: highs.relaxed(programme(graph, relations, (node,), budget), seconds, seed).bound for node in candidates
    }
    return (max(bounds, key=lambda node: bounds[node]),) if bounds else ()


def _crossing(graph: Indexed, relations: Relations) -> Ints:
    """Bytes that are there at the first run of each node in any plan that replays nothing."""
    after = relations.ancestors.T | np.eye(len(graph.time), dtype=np.bool_)
    certain = np.zeros(len(graph.time), np.int64)
    for storage, readers in enumerate(graph.readers):
        certain += graph.size[storage] * (relations.ancestors[:, graph.maker[storage]] & after[:, readers].any(1))
    np.add.at(certain, graph.maker, graph.size)
    return certain


def _moments(graph: Indexed, sequence: Ints) -> Flags:
    """Runs that a programme may look at: those of the backward pass, or without one the first of each node."""
    if graph.backward.any():
        return graph.backward[sequence]
    first = np.zeros(len(sequence), np.bool_)
    first[np.unique(sequence, return_index=True)[1]] = True
    return first


def suggested(board: Board, problem: Programme, values: Floats, order: Ints) -> KeptLine:
    """The plan that keeps and sends what a solution does, wherever a gap between two uses has a moment in it."""
    graph = board.graph
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    moments = rank[list(problem.points)]
    line = board.everything(order)
    uses: list[list[tuple[int, int]]] = [[] for _ in graph.size]
    for node in range(len(order)):
        for i in range(graph.read_at[node], graph.read_at[node + 1]):
            uses[graph.reads[i]].append((int(rank[node]), i))
        for j in range(graph.make_at[node], graph.make_at[node + 1]):
            uses[graph.makes[j]].append((int(rank[node]), len(graph.reads) + j))
    for storage in np.flatnonzero(graph.movable | (problem.away >= 0).any(0)):
        found = sorted(uses[storage])
        away, alive = (
            np.where(some < 0, 0.0, values[some]) for some in (problem.away[:, storage], problem.alive[:, storage])
        )
        there = alive > 0.5 if graph.movable[storage] else away <= 0.5
        for (at, event), following in zip(found, [*(start for start, _ in found[1:]), len(order)], strict=True):
            inside = np.flatnonzero((moments > at) & (moments < following))
            if len(inside) and not there[inside].all():
                last = inside[~there[inside]][-1]
                line.keep[event] = False
                line.hold[event] = int(moments[last])
                line.sent[event] = away[last] > 0.5 * (1.0 - alive[last])
    return line


def _add(
    points: tuple[int, ...], sequence: Ints, taken: Ints, budget: int, moments: Flags, relations: Relations, count: int
) -> tuple[int, ...]:
    """Up to ``count`` more moments that are over budget, the worst first, in one line with the others."""
    chosen = list(points)
    for at in np.argsort(-taken, kind="stable"):
        node = int(sequence[at])
        if len(chosen) == len(points) + count or taken[at] <= budget:
            break
        if not moments[at] or node in chosen:
            continue
        if all(relations.precedes(node, other) or relations.precedes(other, node) for other in chosen):
            chosen.append(node)
    return tuple(relations.in_line(chosen))
