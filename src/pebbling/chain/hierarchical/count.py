"""Counting a plan over tiers: each of its nodes once, a run of snapshots in one go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..revolve import FRESH, tally_of
from ..tally import Tally, in_tier
from .problem import NodeChoice, PlanNode, TierProblem, smallest_first


def count(problem: TierProblem, choices: dict[PlanNode, NodeChoice], tiers: int) -> dict[PlanNode, Tally]:
    """The counts of every node of a plan, of leaves as well, for a schedule with so many tiers."""
    counts: dict[PlanNode, Tally] = {}
    for node in smallest_first(choices):
        choice = choices[node]
        right, left = problem.parts(node, choice)
        for part in (right, left):
            if part is not None and part not in counts:
                counts[part] = _leaf(problem, part, tiers)
        if left is None:
            counts[node] = _handed_down(problem, node, counts[right])
        else:
            counts[node] = _split(problem, node, choice, counts[right], counts[left])
    return counts


def _leaf(problem: TierProblem, node: PlanNode, tiers: int) -> Tally:
    none = (0,) * tiers
    one_step = Tally(1, 0, 1, none, none, none, none, tapes=0, most_tapes=0)
    several = tally_of((node.steps, problem.leaf.slots, FRESH))
    return one_step if several is None else in_tier(several, problem.leaf.tier, tiers)


def _handed_down(problem: TierProblem, node: PlanNode, below: Tally) -> Tally:
    if not node.kept:
        return below
    return below._replace(length=below.length + 1, held=_plus(below.held, -1, problem.levels[node.level].tier))


def _split(problem: TierProblem, node: PlanNode, choice: NodeChoice, right: Tally, left: Tally) -> Tally:
    tier, times = problem.levels[node.level].tier, choice.times
    back, stores = count_back(left, times, tier), 0 if node.kept else times
    return Tally(
        length=stores + times + right.length + back.length,
        advances=times * choice.length + right.advances + back.advances,
        tapings=node.steps,
        stores=_plus(_sum(right.stores, back.stores), stores, tier),
        restores=_sum(right.restores, back.restores),
        held=_plus(back.held, stores, tier),
        highs=_plus(tuple(map(max, right.highs, back.highs)), stores, tier),
        tapes=0,
        most_tapes=0,
    )


def count_back(part: Tally, times: int, tier: int) -> Tally:
    """The counts of the way back over such a run, whose parts all have these counts."""
    return Tally(
        length=times * (part.length + 1),
        advances=times * part.advances,
        tapings=times * part.tapings,
        stores=tuple(times * number for number in part.stores),
        restores=_plus(tuple(times * number for number in part.restores), times, tier),
        held=tuple(times * change for change in part.held),
        highs=part.highs,
        tapes=0,
        most_tapes=0,
    )


def _sum(*counts: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(map(sum, zip(*counts, strict=True)))


def _plus(values: tuple[Any, ...], change: int, tier: int) -> tuple[Any, ...]:
    return tuple(value + change if index == tier else value for index, value in enumerate(values))
