"""The exact dynamic programme over tiers, for plans of moderate size: steps² × slots entries.

The recurrence of ``tiers``, length by length, all slots of a level at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .tiers import DOWN, Choice, Node, Problem

_NEVER = 1 << 60


def solve(problem: Problem) -> dict[Node, Choice]:
    """The choices of a plan that takes the least time, for every node that it consists of."""
    steps = problem.steps
    below = np.array([0, *(_leaf_time(problem, n) for n in range(1, steps + 1))], np.int64)
    tables = []
    for level in problem.levels:
        opened = np.full((level.slots + 1, steps + 1), _NEVER, np.int64)
        kept, splits = opened.copy(), np.zeros((level.slots + 1, steps + 1), np.int64)
        opened[0] = kept[0] = below
        opened[:, :2] = kept[:, :2] = below[:2]
        advance = np.arange(1, steps + 1) * problem.forward
        for n in range(2, steps + 1):
            times = advance[: n - 1] + opened[:-1, n - 1 : 0 : -1] + kept[1:, 1:n]
            splits[1:, n] = times.argmin(axis=1) + 1
            split = times.min(axis=1) + level.read
            kept[1:, n] = np.minimum(below[n], split)
            opened[1:, n] = np.minimum(below[n], split + level.write)
            splits[1:, n] = np.where(split >= below[n], 0, splits[1:, n])
        tables.append((opened, kept, splits, below))
        below = opened[-1]
    return _walk(problem, tables)


def _leaf_time(problem: Problem, steps: int) -> int:
    time = problem.leaf.time(steps)
    return _NEVER if time is None else time


def _walk(problem: Problem, tables: Sequence[tuple[np.ndarray, ...]]) -> dict[Node, Choice]:
    choices: dict[Node, Choice] = {}
    todo = [problem.root]
    while todo:
        node = todo.pop()
        if node.level < 0 or node in choices:
            continue
        opened, kept, splits, below = tables[node.level]
        best = (kept if node.kept else opened)[node.slots, node.steps]
        if best == below[node.steps]:
            choices[node] = DOWN
        else:
            choices[node] = Choice(1, int(splits[node.slots, node.steps]), node.slots)
        todo += [part for part in problem.parts(node, choices[node]) if part is not None]
    return choices
