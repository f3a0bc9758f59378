"""A plan that comes close to the lower bound of ``prices``, and often meets it.

At the right price a part of the plan may be any of its best lengths, so steps are handed down from
node to node: to the faster levels alone where those have that length among their best, else left
and right of a split, one of the two taking its least or most. Where the number of steps falls
between the best lengths of both ways, each way is tried with parts that look for prices of their
own, and the faster is taken. The result is a plan, not a proof: compare its time with the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from .prices import Market, Offer, Prices
from .tiers import DOWN, Choice, Node, Problem

_RUN = 1024  # a run is spelled out as a whole wherever it is used, so it stays short


class _Task(NamedTuple):
    node: Node
    prices: Prices
    depth: int


class _Way(NamedTuple):
    choice: Choice
    parts: tuple[_Task, ...]


def descend(market: Market) -> dict[Node, Choice]:
    """The choices of a good plan, for every node that it consists of."""
    problem, root = market.problem, market.problem.root
    known: dict[Node, tuple[float, Choice]] = {}
    ways: dict[Node, list[_Way]] = {}
    stack = [_Task(root, market.right_for(root), 0)]
    while stack:
        node = stack[-1].node
        if node not in ways:
            ways[node] = list(_ways(market, stack[-1])) if node.level >= 0 else []
        missing = [part for way in ways[node] for part in way.parts if part.node not in known]
        if missing:
            stack += missing
        else:
            known[node] = _fastest(problem, node, ways[node], known)
            stack.pop()
    return reached(problem, {node: choice for node, (_, choice) in known.items()})


def reached(problem: Problem, choices: dict[Node, Choice]) -> dict[Node, Choice]:
    """Those of the choices that the plan for all steps makes use of."""
    used: dict[Node, Choice] = {}
    todo = [problem.root]
    while todo:
        node = todo.pop()
        if node.level >= 0 and node not in used:
            used[node] = choices[node]
            todo += [part for part in problem.parts(node, choices[node]) if part is not None]
    return used


def _fastest(
    problem: Problem, node: Node, ways: list[_Way], known: dict[Node, tuple[float, Choice]]
) -> tuple[float, Choice]:
    if node.level < 0:
        time = problem.leaf.time(node.steps)
        return inf if time is None else time, DOWN
    times = [
        problem.time(node, choice) + sum(times * known[part.node][0] for times, part in zip((1, choice.times), parts))
        for choice, parts in ways
    ]
    best = times.index(min(times))
    return times[best], ways[best].choice


def _ways(market: Market, task: _Task) -> Iterator[_Way]:
    """The one way that keeps to the bound, or all that may come close where none does."""
    node, prices, depth = task
    steps, problem = node.steps, market.problem
    if steps == 1:
        yield _way(problem, task, DOWN)
        return
    offer = prices.offer(node, depth)
    if not _within(steps, offer):
        prices, depth = market.right_for(node), 0
        task, offer = _Task(node, prices, depth), prices.offer(node, depth)
    level = problem.levels[node.level]
    below = prices.below(node.level, depth)
    left = prices.offer(node._replace(kept=True), depth + 1)
    right = prices.offer(problem.node(0, node.level, node.slots - 1), depth)
    transfers = (level.read + (0 if node.kept else level.write)) * prices.scale
    split = (left[0] + right[0] - transfers, left[1] + right[1], left[2] + right[2])
    if below[0] == offer[0] and _within(steps, below):
        yield _way(problem, task, DOWN)
    elif split[0] == offer[0] and _within(steps, split):
        yield _way(problem, task, _split(task, offer, below, left, right))
    else:
        yield _way(problem, task, DOWN)
        lengths = {left[1], left[2], steps - right[1], steps - right[2], steps - 1}
        for length in sorted(lengths):
            if 1 <= length < steps:
                yield _way(problem, task, Choice(1, length, node.slots))


def _within(steps: int, offer: Offer) -> bool:
    return offer[1] <= steps <= offer[2]


def _way(problem: Problem, task: _Task, choice: Choice) -> _Way:
    first, second = problem.parts(task.node, choice)
    parts = [_Task(first, task.prices, task.depth)]
    if second is not None:
        parts.append(_Task(second, task.prices, task.depth + 1))
    return _Way(choice, tuple(parts))


def _split(task: _Task, offer: Offer, below: Offer, left: Offer, right: Offer) -> Choice:
    """The first snapshots after the one of the first state, and how many slots the steps before each may use."""
    node, prices, depth = task
    columns = prices.columns[node.level]
    slots = node.slots
    if depth + 1 == len(columns):
        slots = 1
    elif columns[depth + 1][True].settled:
        slots = min(slots, max(1, columns[depth + 1][True].last))
    times, length, opened = 0, 0, columns[depth][False]
    if not node.kept and node.slots > opened.last and not opened.settled:
        times, length = _run(node.steps, offer, below, left, node.slots - opened.last, opened.growth[0] > 0)
    return Choice(times, length, slots) if times else Choice(1, max(left[1], node.steps - right[2]), slots)


def _run(steps: int, offer: Offer, below: Offer, left: Offer, spare: int, earning: bool) -> tuple[int, int]:
    """How many snapshots to write at equal distances, and that distance, where slots abound.

    Where each snapshot earns, all the spare ones are written, and the steps that are too few for
    the longest distance shorten the first distances; where they just earn their cost, few are.
    """
    _, shortest, longest = left
    if not earning:
        times, length = (steps - below[2]) // longest, longest
    elif steps == offer[2] or shortest == longest:
        times, length = spare, longest
    else:
        times, length = (offer[2] - steps) // (longest - shortest), shortest
    return min(times, spare, _RUN), length
