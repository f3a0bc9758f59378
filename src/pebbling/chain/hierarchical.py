"""Snapshots in a hierarchy of tiers, each slower than the one before it.

Herrmann and Pallez, "H-Revolve", ACM TOMS 46 (2020). The plan is built from convex hulls, with a
lower bound on the time of any plan; where it meets the bound, it is optimal and says so. Otherwise a
plan of moderate size is found by dynamic programming, and a larger one carries its gap. Transfers
block: see ``Staged`` for transfers that overlap the compute. Only states are kept, no tapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

from ..errors import BudgetError
from .actions import Advance, Free, Restore, Store
from .binomial import fewest_writes
from .cost import Model, Room, Tier
from .descent import descend
from .prices import Market
from .revolve import FIRST, FRESH, KEPT, halves, leaf, tally_of
from .schedule import Schedule
from .spans import Item, Span, Sub
from .tally import Tally, in_tier
from .tiers import Choice, Node, Problem, total_time
from .tiers_table import solve
from .validate import amount, whole

EXACT = 4_000_000
"""Entries of the dynamic programme up to which it is used where the hull leaves a gap."""

_METHODS = ("auto", "exact", "hull")


@dataclass(frozen=True)
class Hierarchical(Schedule):
    """Reverse ``steps`` steps with snapshots in ``tiers``, the fastest first, in the least time.

    ``forward`` is the time of one advanced step, ``backward`` that of one turn. ``exact`` says
    whether the plan is proven optimal; ``bound`` is a lower bound on the time of any plan, and
    ``gap`` is ``time / bound - 1``. ``method`` may be "hull" to do without the dynamic programme,
    or "exact" to use it however long it takes.

    >>> Hierarchical(60, [Tier(2), Tier(2, write=2, read=2)], forward=1, backward=3).cost.time
    387.0
    """

    steps: int
    tiers: Sequence[Tier]
    forward: float = 1.0
    backward: float = 1.0
    method: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        tiers = tuple(self.tiers)
        if not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            raise ValueError(f"tiers must be a list of at least one pebbling.Tier, not {self.tiers!r}")
        object.__setattr__(self, "tiers", tiers)
        object.__setattr__(self, "forward", amount(self.forward, "forward", positive=True))
        object.__setattr__(self, "backward", amount(self.backward, "backward"))
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, not {self.method!r}")
        if self.steps > 1 and all(tier.slots == 0 for tier in tiers):
            raise BudgetError(f"{self.steps} steps can't be reversed without a slot: 1 is needed", minimum=1)

    @property
    def model(self) -> Model:
        rooms = tuple(Room(tier.slots, tier.write, tier.read) for tier in self.tiers)
        return Model(self.steps, rooms, self.forward, self.backward)

    @property
    def root(self) -> Span:
        if self.steps <= 1:
            return (self.steps, -1, self._problem.leaf.slots, FIRST, 0)
        return self._span(self._problem.root, FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        """The span (steps, level, slots, how, slot): a node of the plan whose first slot has this number."""
        steps, level, slots, how, slot = span
        bottom = self._problem.leaf
        if level < 0:
            if bottom.slots == 0:
                return leaf(steps, slot, bottom.tier, how)
            return [
                Sub(item.offset, (item.span[0], -1, *item.span[1:], bottom.slots - item.span[1]))
                if isinstance(item, Sub)
                else item
                for item in halves((steps, slots, how), slot, fewest_writes, bottom.tier)
            ]
        node, tier = Node(steps, level, slots, how == KEPT), self._problem.levels[level].tier
        choice = self._choices[node]
        right, left = self._problem.parts(node, choice)
        later = FIRST if how == FIRST else FRESH
        if choice.times == 0 or left is None:
            return [*([Free(0, slot, tier)] if how == KEPT else []), Sub(0, self._span(right, later))]
        length = choice.length
        items: list[Item] = []
        for i in range(choice.times):
            if i or how != KEPT:
                items.append(Store(i * length, slot + i, tier))
            items.append(Advance(i * length, (i + 1) * length))
        items.append(Sub(choice.times * length, self._span(right, later, node, slot + choice.times)))
        for i in reversed(range(choice.times)):
            items += [
                Restore(i * length, slot + i, tier),
                Sub(i * length, (length, level, left.slots, KEPT, slot + i)),
            ]
        return items

    def closed(self, span: Span) -> Tally | None:
        steps, level, slots, how, _ = span
        if level >= 0 or self._problem.leaf.slots == 0:
            return None
        count = tally_of((steps, slots, how))
        return None if count is None else in_tier(count, self._problem.leaf.tier, len(self.tiers))

    @property
    def exact(self) -> bool:
        """Whether the plan is proven optimal."""
        return self._plan[1] == self._plan[2]

    @property
    def bound(self) -> float:
        """A lower bound on the time of any plan."""
        return float(self._plan[2] * self._problem.unit)

    @property
    def gap(self) -> float:
        """How far the time may be above that of the best plan."""
        return float(Fraction(self._plan[1], self._plan[2]) - 1) if self._plan[2] else 0.0

    @cached_property
    def _problem(self) -> Problem:
        return Problem.of(self.steps, self.tiers, self.forward, self.backward)

    @property
    def _choices(self) -> dict[Node, Choice]:
        return self._plan[0]

    @cached_property
    def _plan(self) -> tuple[dict[Node, Choice], int, int]:
        """The choices of the plan, its time and a lower bound on it, in units of the problem."""
        problem = self._problem
        if self.steps <= 1 or not problem.levels:
            time = 0 if self.steps == 0 else problem.leaf.time(self.steps) or 0
            return {}, time, time
        market = Market(problem)
        choices = descend(market)
        time, bound = total_time(problem, choices), ceil(market.right_for(problem.root).bound(problem.root))
        slots = sum(level.slots for level in problem.levels)
        small = self.steps * self.steps * slots <= EXACT * 40
        if time > bound and self.method != "hull" and (self.method == "exact" or small):
            choices = solve(problem)
            time = bound = total_time(problem, choices)
        return choices, time, bound

    def _span(self, node: Node, how: int, above: Node | None = None, slot: int = 0) -> Span:
        """The span of a node; one of the same level as ``above`` goes on with that one's slots."""
        first = slot if above is not None and node.level == above.level else 0
        return (node.steps, node.level, node.slots, how, first)
