"""A lower bound on the time of every plan, from what a step would have to be worth.

Pay a price for every reversed step, and let a plan be as long as it likes. The most that it earns
beyond its own time, max over n of price·n - time(n), obeys the recurrence of ``problem`` with sums in
place of splits, because parts of a plan no longer share out a given number of steps:

    split(price, m) = kept(price - forward, m) + open(price, m-1) - read
    kept(price, m)  = max(below(price), split(price, m))
    open(price, m)  = max(below(price), split(price, m) - write)

For n steps, price·n - open(price) is a lower bound at any price (Lagrange), and at the right price
the value at n of the lower convex hull of the least times (Legendre and Fenchel); ``price_search`` finds
that price. There is one number for each slot and each time that the price was lowered by
``forward``, whatever the number of steps.

The hull lies below the least time where n is between two of its vertices; ``excess`` closes the rest.

An example: one tier of two slots, write 2, read 1, a step 1, a turn 1. The least times to reverse 1, 2, … 6
steps are 1, 6, 10, 15, 19 and 24. At a price of 4.5 a step, plans of so many steps earn 3.5, 3, 3.5, 3, 3.5
and 3: at most 3.5, with 1, 3 or 5 steps. So 5 steps take at least 4.5 · 5 - 3.5 = 19, which is what they do
take; and 4 steps at least 14.5, half a unit less than they take.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import TypeAlias

from .. import binomial
from .problem import Leaf, PlanNode, TierProblem

Offer: TypeAlias = tuple[int, int, int]
"""What a part earns at a price, and the least and the most steps with which it earns that."""

_NO_GROWTH = (0, 0, 0)


class Column:
    """The offers for 0, 1, … slots, and the growth with each slot after the last of them."""

    __slots__ = ("growth", "offers")

    def __init__(self, offers: list[Offer], growth: Offer = _NO_GROWTH) -> None:
        self.offers, self.growth = offers, growth

    @property
    def last(self) -> int:
        """The number of slots from which on the growth is constant."""
        return len(self.offers) - 1

    @property
    def settled(self) -> bool:
        """Whether slots after the last change nothing."""
        return self.growth == _NO_GROWTH

    def at(self, slots: int) -> Offer:
        """The offer for a number of slots."""
        more = slots - self.last
        if more <= 0:
            return self.offers[slots]
        (value, least, most), (up, shortest, longest) = self.offers[-1], self.growth
        return value + more * up, least + more * shortest, most + more * longest


class Prices:
    """What a node and every part of it earn at the price ``price / scale`` a step, and at those lower by ``forward``.

    A column may end where its best length exceeds ``longest``: the price is known to be too high then.
    """

    def __init__(self, problem: TierProblem, top: PlanNode, price: int, scale: int, longest: float = inf) -> None:
        self.problem, self.top, self.price, self.scale, self.longest = problem, top, price, scale, longest
        self._leaves: list[Offer] = []
        self.columns: list[list[tuple[Column, Column]]] = []
        for level in range(top.level + 1):
            self.columns.append(self._columns(level))

    def offer(self, node: PlanNode, depth: int) -> Offer:
        """What a node earns where the price was lowered ``depth`` times; its number of steps plays no part."""
        if node.level < 0:
            return self._leaf(depth)
        columns = self.columns[node.level]
        if node.slots == 0 or depth >= len(columns):
            return self.below(node.level, depth)
        return columns[depth][node.kept].at(node.slots)

    def below(self, level: int, depth: int) -> Offer:
        """What the faster levels earn without this one."""
        while (level := level - 1) >= 0:
            if depth < len(self.columns[level]):
                return self.columns[level][depth][False].at(self.problem.levels[level].slots)
        return self._leaf(depth)

    def parts(self, node: PlanNode, depth: int) -> tuple[Offer, Offer, Offer]:
        """What the faster levels earn, and what the parts left and right of a split do."""
        left = self.offer(node._replace(kept=True), depth + 1)
        right = self.offer(self.problem.node(0, node.level, node.slots - 1), depth)
        return self.below(node.level, depth), left, right

    def split(self, node: PlanNode, depth: int) -> Offer:
        """What a node earns if it is split."""
        level = self.problem.levels[node.level]
        transfers = (level.read + (0 if node.kept else level.write)) * self.scale
        _, left, right = self.parts(node, depth)
        return left[0] + right[0] - transfers, left[1] + right[1], left[2] + right[2]

    def bound(self, node: PlanNode) -> Fraction:
        """No plan for the node takes less time than this."""
        return Fraction(self.price * node.steps - self.offer(node, 0)[0], self.scale)

    def side(self, node: PlanNode) -> int:
        """Whether the node's number of steps is above its best lengths (-1), among them (0) or below (1)."""
        _, least, most = self.offer(node, 0)
        return (least > node.steps) - (most < node.steps)

    def _leaf(self, depth: int) -> Offer:
        while len(self._leaves) <= depth:
            price = self.price - len(self._leaves) * self.problem.forward * self.scale
            self._leaves.append(leaf_offer(self.problem.leaf, price, self.scale))
        return self._leaves[depth]

    def _columns(self, level: int) -> list[tuple[Column, Column]]:
        """Open and kept columns of a level by depth; deeper than these, the level earns nothing.

        No plan goes deeper than it has steps, because the part left of a split is shorter.
        """
        _, slots, write, read = self.problem.levels[level]
        write, read, slots = write * self.scale, read * self.scale, self.top.slots if level == self.top.level else slots
        below = [self.below(level, 0)]
        while below[-1][0] > read and len(below) < self.top.steps:
            below.append(self.below(level, len(below)))
        deeper = Column([below.pop()])
        columns = []
        for offer in reversed(below):
            columns.append(_grow(offer, deeper, slots, write, read, self.longest))
            deeper = columns[-1][1]
        return columns[::-1]


def _grow(below: Offer, deeper: Column, slots: int, write: int, read: int, longest: float) -> tuple[Column, Column]:
    """Open and kept columns at one depth, from the kept column one deeper.

    Once the deeper column no longer changes, a growth seen twice in a row goes on for ever. Neither
    more slots nor a higher price ever make the best length shorter.
    """
    opened, kept, right = [below], [below], below
    last, flat = deeper.last, deeper.growth[:2] == (0, 0)
    for number in range(1, slots + 1):
        left = deeper.offers[number] if number <= last else deeper.at(number)
        value, least, most = left[0] + right[0] - read, left[1] + right[1], left[2] + right[2]
        kept.append(_better(below, (value, least, most)))
        right = _better(below, (value - write, least, most))
        opened.append(right)
        if right[1] > longest:
            break
        if flat and number > last + 1:
            growth, growth_kept = _difference(opened), _difference(kept)
            if deeper.settled and growth == _difference(opened, 2) and growth_kept == _difference(kept, 2):
                return Column(opened, growth), Column(kept, growth_kept)
            if right[1] + (slots - number) * growth[1] > longest and growth[:2] == _difference(opened, 2)[:2]:
                return Column(opened, growth), Column(kept, growth_kept)
    return Column(opened), Column(kept)


def _better(one: Offer, two: Offer) -> Offer:
    if one[0] != two[0]:
        return one if one[0] > two[0] else two
    return one[0], min(one[1], two[1]), max(one[2], two[2])


def _difference(offers: list[Offer], back: int = 1) -> Offer:
    (value, least, most), (value_before, least_before, most_before) = offers[-back], offers[-back - 1]
    return value - value_before, least - least_before, most - most_before


def leaf_offer(leaf: Leaf, price: int, scale: int) -> Offer:
    """What a leaf earns: binomial times grow by turn + read + r·forward a step up to beta(slots, r) steps."""
    repeats, exactly = divmod(price - scale * (leaf.turn + leaf.read), scale * leaf.forward)
    if leaf.slots == 0 or repeats <= 0:
        return price - scale * leaf.turn, 1, 1
    most = binomial.beta(leaf.slots, repeats)
    least = most if exactly else binomial.beta(leaf.slots, repeats - 1)
    advances = repeats * most - binomial.beta(leaf.slots + 1, repeats - 1)
    time = leaf.turn * most + leaf.read * (most - 1) + leaf.forward * advances
    return price * most - scale * time, least, most
