"""Snapshots in a hierarchy of tiers: the problem in whole numbers, and what a plan for it is.

Herrmann and Pallez, "H-Revolve", ACM TOMS 46 (2020). Level by level, fastest first, the least time
to reverse n steps with m slots of a level and all of the faster ones is

    split(n, m) = min over j of  j·forward + open(n-j, m-1) + read + kept(j, m)
    kept(n, m)  = min(below(n), split(n, m))            first state in a slot of this level already
    open(n, m)  = min(below(n), write + split(n, m))    first state in working memory only

where below(n) is open(n, all slots) of the next faster level. Below the fastest level stands a
leaf: one step; or, where the fastest tier is written for free, binomial checkpointing in it, which
has a closed form (``Leaf``).

Costs become whole numbers, read as the decimals that they are written as, so that sums and
comparisons are exact and every time is a multiple of one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, isqrt, lcm
from typing import NamedTuple

from .. import binomial
from ..cost import Tier


class PlanNode(NamedTuple):
    """Reverse ``steps`` steps with ``slots`` slots of a level; -1 is the level of the leaves."""

    steps: int
    level: int
    slots: int
    kept: bool


class NodeChoice(NamedTuple):
    """How a node is done: by the faster levels alone, or with ``times`` snapshots ``length`` steps apart.

    The stretch that follows each of those snapshots is a kept node planned for ``slots`` slots.
    """

    times: int
    length: int
    slots: int


DOWN = NodeChoice(0, 0, 0)


class SlotLevel(NamedTuple):
    """A tier with slots, its costs in whole numbers."""

    tier: int
    slots: int
    write: int
    read: int


class Leaf(NamedTuple):
    """What lies below all levels: binomial checkpointing with ``slots`` slots of a tier, or (0 slots) one step."""

    tier: int
    slots: int
    read: int
    forward: int
    turn: int

    def time(self, steps: int) -> int | None:
        """The least time to reverse ``steps`` steps; ``None`` where they are too many."""
        if self.slots == 0 and steps > 1:
            return None
        advances = binomial.advances(steps, self.slots) if steps > 1 else 0
        return self.turn * steps + self.forward * advances + self.read * (steps - 1)


@dataclass(frozen=True)
class TierProblem:
    """Steps to reverse, levels to keep snapshots in, and what things take, in multiples of ``unit``."""

    steps: int
    forward: int
    leaf: Leaf
    levels: tuple[SlotLevel, ...]
    unit: Fraction

    @classmethod
    def of(cls, steps: int, tiers: Sequence[Tier], forward: float, backward: float) -> TierProblem:
        """The problem as a user states it; tiers without slots drop out."""
        costs = [forward, backward, *(cost for tier in tiers for cost in (tier.write, tier.read))]
        exact = [Fraction(repr(cost)) for cost in costs]
        unit = Fraction(gcd(*(cost.numerator for cost in exact)), lcm(*(cost.denominator for cost in exact)))
        advance, turn, *transfers = (int(cost / unit) for cost in exact)
        levels = [
            SlotLevel(index, steps if tier.slots is None else min(tier.slots, steps), write, read)
            for index, (tier, write, read) in enumerate(zip(tiers, transfers[::2], transfers[1::2], strict=True))
            if tier.slots != 0
        ]
        leaf = Leaf(0, 0, 0, advance, turn)
        if levels and levels[0].write == 0:
            leaf = Leaf(levels[0].tier, levels[0].slots, levels[0].read, advance, turn)
            del levels[0]
        return cls(steps, advance, leaf, tuple(levels), unit)

    @property
    def longest_run(self) -> int:
        """The most snapshots in one choice, whose writes are spelled out as a whole wherever it is used."""
        return max(1024, isqrt(self.steps))

    @property
    def root(self) -> PlanNode:
        """All steps with all slots."""
        return self.node(self.steps, len(self.levels) - 1)

    def node(self, steps: int, level: int, slots: int | None = None) -> PlanNode:
        """An open node with ``slots`` slots (all, if not given); without slots it is one of the next faster level."""
        if slots == 0:
            level, slots = level - 1, None
        if slots is None:
            slots = self.levels[level].slots if level >= 0 else self.leaf.slots
        return PlanNode(steps, level, slots, False)

    def below(self, node: PlanNode) -> PlanNode:
        """The same steps without this level."""
        return self.node(node.steps, node.level, 0)

    def parts(self, node: PlanNode, choice: NodeChoice) -> tuple[PlanNode, PlanNode | None]:
        """The node that the last of the choice's snapshots leads to, and the one after each of them."""
        times, length, slots = choice
        if times == 0:
            return self.below(node), None
        right = self.node(node.steps - times * length, node.level, node.slots - times)
        return right, PlanNode(length, node.level, slots, True)

    def time(self, node: PlanNode, choice: NodeChoice) -> int:
        """What a choice takes besides its parts: advances and transfers."""
        times, length, _ = choice
        if times == 0:
            return 0
        level = self.levels[node.level]
        return times * (length * self.forward + level.read + (0 if node.kept else level.write))


def smallest_first(choices: dict[PlanNode, NodeChoice]) -> list[PlanNode]:
    """The nodes of a plan, each after its parts."""
    return sorted(choices, key=lambda node: (node.steps, node.level))


def total_time(problem: TierProblem, choices: dict[PlanNode, NodeChoice]) -> int:
    """What a plan takes in all."""
    known: dict[PlanNode, int] = {}
    for node in smallest_first(choices):
        choice = choices[node]
        right, left = (_known_time(problem, part, known) for part in problem.parts(node, choice))
        known[node] = problem.time(node, choice) + right + choice.times * left
    return _known_time(problem, problem.root, known)


def _known_time(problem: TierProblem, node: PlanNode | None, known: dict[PlanNode, int]) -> int:
    if node is None:
        return 0
    if node.level >= 0:
        return known[node]
    time = problem.leaf.time(node.steps)
    assert time is not None
    return time
