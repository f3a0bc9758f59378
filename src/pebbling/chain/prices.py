"""A lower bound on the time of every plan, from what a step would have to be worth.

Pay a price for every reversed step, and let a plan be as long as it likes. The most that it earns
beyond its own time, max over n of price·n - time(n), obeys the recurrence of ``tiers`` with sums in
place of splits, because parts of a plan no longer share out a given number of steps:

    split(price, m) = kept(price - forward, m) + open(price, m-1) - read
    kept(price, m)  = max(below(price), split(price, m))
    open(price, m)  = max(below(price), split(price, m) - write)

For n steps, price·n - open(price) is a lower bound at any price (Lagrange), and at the right price
the value at n of the lower convex hull of the least times (Legendre and Fenchel). That price is
found from chords of the hull (Eisner and Severance, J. ACM 23, 1976). A table has one entry for
each slot and each time that the price was lowered by ``forward``, whatever the number of steps.

The hull is below the least time where n lies between two of its vertices; ``excess`` closes the rest.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import NamedTuple, TypeAlias

from . import binomial
from .tiers import Leaf, Node, Problem

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
        more = slots - self.last
        if more <= 0:
            return self.offers[slots]
        (value, least, most), (up, shortest, longest) = self.offers[-1], self.growth
        return value + more * up, least + more * shortest, most + more * longest


class Prices:
    """What every part of a plan earns at the price ``price / scale`` a step and at those lower by ``forward``."""

    def __init__(self, problem: Problem, price: int, scale: int, longest: float = inf) -> None:
        self.problem, self.price, self.scale, self.longest = problem, price, scale, longest
        self._leaves: list[Offer] = []
        self.columns: list[list[tuple[Column, Column]]] = []
        for level in range(len(problem.levels)):
            self.columns.append(self._columns(level))

    def offer(self, node: Node, depth: int) -> Offer:
        """What a node earns where the price was lowered ``depth`` times; its number of steps plays no part."""
        if node.level < 0:
            return self._leaf(depth)
        columns = self.columns[node.level]
        if node.slots == 0 or depth >= len(columns):
            return self.below(node.level, depth)
        return columns[depth][node.kept].at(node.slots)

    def below(self, level: int, depth: int) -> Offer:
        """What the faster levels earn without this one."""
        return self.offer(self.problem.node(0, level, 0), depth)

    def parts(self, node: Node, depth: int) -> tuple[Offer, Offer, Offer]:
        """What the faster levels earn, and what the parts left and right of a split do."""
        left = self.offer(node._replace(kept=True), depth + 1)
        right = self.offer(self.problem.node(0, node.level, node.slots - 1), depth)
        return self.below(node.level, depth), left, right

    def split(self, node: Node, depth: int) -> Offer:
        """What a node earns if it is split."""
        level = self.problem.levels[node.level]
        transfers = (level.read + (0 if node.kept else level.write)) * self.scale
        _, left, right = self.parts(node, depth)
        return left[0] + right[0] - transfers, left[1] + right[1], left[2] + right[2]

    def bound(self, node: Node) -> Fraction:
        """No plan for the node takes less time than this."""
        return Fraction(self.price * node.steps - self.offer(node, 0)[0], self.scale)

    def _leaf(self, depth: int) -> Offer:
        while len(self._leaves) <= depth:
            price = self.price - len(self._leaves) * self.problem.forward * self.scale
            self._leaves.append(leaf_offer(self.problem.leaf, price, self.scale))
        return self._leaves[depth]

    def _columns(self, level: int) -> list[tuple[Column, Column]]:
        """Open and kept columns of a level by depth; deeper than these, the level earns nothing."""
        _, slots, write, read = self.problem.levels[level]
        write, read = write * self.scale, read * self.scale
        below = [self.below(level, 0)]
        while below[-1][0] > read:
            below.append(self.below(level, len(below)))
        deeper = Column([below.pop()])
        columns = []
        for offer in reversed(below):
            columns.append(_grow(offer, deeper, slots, write, read, self.longest))
            deeper = columns[-1][1]
        return columns[::-1]


def _grow(below: Offer, deeper: Column, slots: int, write: int, read: int, longest: float) -> tuple[Column, Column]:
    """Open and kept columns at one depth, from the kept column one deeper.

    Once the deeper column no longer changes, a growth seen twice in a row goes on for ever. More
    slots, or a higher price, never make the best length shorter, so a column that gets longer than
    ``longest`` may end there if only that matters.
    """
    opened, kept, right = [below], [below], below
    last, settled = deeper.last, deeper.settled
    for number in range(1, slots + 1):
        left = deeper.offers[number] if number <= last else deeper.at(number)
        value, least, most = left[0] + right[0] - read, left[1] + right[1], left[2] + right[2]
        kept.append(_better(below, (value, least, most)))
        right = _better(below, (value - write, least, most))
        opened.append(right)
        if right[1] > longest:
            return Column(opened), Column(kept)
        if settled and number > last + 1 and _steady(opened) and _steady(kept):
            return Column(opened, _difference(opened)), Column(kept, _difference(kept))
    return Column(opened), Column(kept)


def _better(one: Offer, two: Offer) -> Offer:
    if one[0] != two[0]:
        return one if one[0] > two[0] else two
    return one[0], min(one[1], two[1]), max(one[2], two[2])


def _difference(offers: list[Offer], back: int = 1) -> Offer:
    (value, least, most), (value_before, least_before, most_before) = offers[-back], offers[-back - 1]
    return value - value_before, least - least_before, most - most_before


def _steady(offers: list[Offer]) -> bool:
    return _difference(offers) == _difference(offers, 2)


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


class Market:
    """The prices asked for so far, and the search for the right one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._known: dict[Fraction, Prices] = {}

    def at(self, price: Fraction) -> Prices:
        """Prices that start at ``price``."""
        if price not in self._known:
            self._known[price] = Prices(self.problem, price.numerator, price.denominator)
        return self._known[price]

    def right_for(self, node: Node) -> Prices:
        """Prices at which the node's number of steps is one of the best."""
        low, high = self._bracket(node)
        if low == high:
            return self.at(low)
        short, long = Vertex.of(self.at(low), node, -1), Vertex.of(self.at(high), node, 1)
        while side := _side(prices := self.at((long.time - short.time) / (long.steps - short.steps)), node):
            vertex = Vertex.of(prices, node, side)
            short, long = (vertex, long) if side < 0 else (short, vertex)
        return prices

    def _bracket(self, node: Node) -> tuple[Fraction, Fraction]:
        """The right price, twice, or one too low and one too high that differ by ``forward``."""
        leaf, forward = self.problem.leaf, self.problem.forward
        floor = Fraction(leaf.turn + leaf.read % forward)  # too low, and in line with the kinks of binomial times
        low, high, middle = 0, 0, 1
        while high - low != 1:
            price = floor + middle * forward
            side = _side(self._known.get(price) or self._glance(price, node), node)
            if side == 0:
                return price, price
            low, high = (middle, high) if side < 0 else (low, middle)
            middle = (low + high) // 2 if high else 2 * low
        return floor + low * forward, floor + high * forward

    def _glance(self, price: Fraction, node: Node) -> Prices:
        """Prices that are true unless they are too high."""
        return Prices(self.problem, price.numerator, price.denominator, node.steps)


class Vertex(NamedTuple):
    """A number of steps and the least time for it, where the hull is exact."""

    steps: int
    time: Fraction

    @classmethod
    def of(cls, prices: Prices, node: Node, side: int) -> Vertex:
        """The shortest (1) or the longest (-1) of the best lengths."""
        value, least, most = prices.offer(node, 0)
        steps = least if side > 0 else most
        return cls(steps, Fraction(prices.price * steps - value, prices.scale))


def _side(prices: Prices, node: Node) -> int:
    """Whether the best lengths are too short (-1), right (0) or too long (1)."""
    _, least, most = prices.offer(node, 0)
    return (least > node.steps) - (most < node.steps)
