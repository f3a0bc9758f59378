"""Snapshots in a hierarchy of tiers, each slower than the one before it.

Herrmann and Pallez, "H-Revolve: A Framework for Adjoint Computation on Synchronous Hierarchical
Platforms", ACM TOMS 46 (2020). Optimal for steps of equal cost and states of equal size, among plans
that nest the tiers in the order given: while a snapshot is needed, later ones go to the same tier or
to faster ones. Where no tier is faster than the one before it, a search through all plays of short
chains finds none that is faster. Transfers block: see ``Staged`` for transfers that overlap the
compute. Only states are kept, no tapes: see ``Mixed``.

``fastest`` finds the plan: a lower bound from prices and a plan from the same prices, in time that
hardly depends on the number of steps; where these differ, a dynamic programme over what lies
between them. The plan says whether it is proven optimal, and if not, how far off it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from ...errors import BudgetError
from ..actions import Advance, Free, Restore, Snapshot
from ..binomial import fewest_writes
from ..cost import Model, Room, Tier
from ..revolve import FIRST, FRESH, KEPT, halves, leaf, tally_of
from ..schedule import Schedule
from ..spans import Item, Span, Sub
from ..tally import Tally, in_tier
from ..validate import amount, whole
from .count import count, count_back
from .fastest import METHODS, Found, fastest
from .problem import PlanNode, TierProblem

BACK = FIRST + 1
"""A span that reverses what lies between the snapshots of a run."""

_TOGETHER = 64


@dataclass(frozen=True)
class Hierarchical(Schedule):
    """Reverse ``steps`` steps with snapshots in ``tiers``, the fastest first, in the least time.

    ``forward`` is the time of one advanced step, ``backward`` that of one turn. ``exact`` says
    whether the plan is proven optimal; ``bound`` is a lower bound on the time of any plan, and
    ``gap`` is ``time / bound - 1``. ``method`` may be "hull" to do with the plan that the bound
    leads to, or "exact" to go on until the plan is proven optimal, however long that takes; "auto"
    goes on up to 100,000 steps, and beyond that while it is quick.

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
        tiers = tuple(self.tiers) if isinstance(self.tiers, Iterable) else ()
        if not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            raise ValueError(f"tiers must be a list of at least one pebbling.Tier, not {self.tiers!r}")
        object.__setattr__(self, "tiers", tiers)
        object.__setattr__(self, "forward", amount(self.forward, "forward", positive=True))
        object.__setattr__(self, "backward", amount(self.backward, "backward"))
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {self.method!r}")
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
        """The span (steps, level, slots, how, slot) is a node of the plan whose first slot has this number.

        The way back over a run of snapshots has spans of its own, (steps, level, slots, BACK, slot, times).
        """
        steps, level, slots, how, slot = span[:5]
        if level < 0:
            return self._leaf(steps, slots, how, slot)
        tier = self._problem.levels[level].tier
        if how == BACK:
            return self._back(span, tier)
        node = PlanNode(steps, level, slots, how == KEPT)
        (times, length, part_slots), later = self._plan.choices[node], FIRST if how == FIRST else FRESH
        right, left = self._problem.parts(node, self._plan.choices[node])
        if left is None:
            return [*([Free(0, slot, tier)] if how == KEPT else []), Sub(0, self._span(right, later))]
        out: list[Item] = []
        for i in range(times):
            out += [Snapshot(i * length, slot + i, tier), Advance(i * length, (i + 1) * length)]
        return [
            *(out[1:] if how == KEPT else out),
            Sub(times * length, self._span(right, later, level, slot + times)),
            *self._back((times * length, level, part_slots, BACK, slot, times), tier),
        ]

    def _back(self, span: Span, tier: int) -> list[Item]:
        steps, level, slots, _, slot, times = span
        length = steps // times
        if times > _TOGETHER:
            half = times // 2
            later = ((times - half) * length, level, slots, BACK, slot + half, times - half)
            return [Sub(half * length, later), Sub(0, (half * length, level, slots, BACK, slot, half))]
        items: list[Item] = []
        for i in reversed(range(times)):
            part = Sub(i * length, (length, level, slots, KEPT, slot + i))
            items += [Restore(i * length, slot + i, tier), part]
        return items

    def _leaf(self, steps: int, slots: int, how: int, slot: int) -> Sequence[Item]:
        bottom = self._problem.leaf
        return _binomial(steps, slots, how, slot, bottom.tier) if slots else leaf(steps, slot, bottom.tier, how)

    def closed(self, span: Span) -> Tally | None:
        steps, level, slots, how, *_ = span
        if level < 0:
            several = tally_of((steps, slots, how)) if slots else None
            return None if several is None else in_tier(several, self._problem.leaf.tier, len(self.tiers))
        if how == BACK:
            part = self._counts[PlanNode(steps // span[5], level, slots, True)]
            return count_back(part, span[5], self._problem.levels[level].tier)
        tally = self._counts[PlanNode(steps, level, slots, how == KEPT)]
        return tally._replace(length=tally.length + 1) if how == FIRST else tally

    @property
    def exact(self) -> bool:
        """Whether the plan is proven optimal: exactly, or to 12 digits for costs with too many digits."""
        return self._plan.time == self._plan.bound

    @property
    def bound(self) -> float:
        """A lower bound on the time of any plan."""
        time = self.cost.time
        return time if self.exact else min(time, float(self._plan.bound * self._problem.unit))

    @property
    def gap(self) -> float:
        """By what fraction the time may be above that of the best plan."""
        return 0.0 if self.exact else float(Fraction(self._plan.time, self._plan.bound) - 1)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _problem(self) -> TierProblem:
        return TierProblem.of(self.steps, self.tiers, self.forward, self.backward)

    @cached_property
    def _plan(self) -> Found:
        return fastest(self._problem, self.method)

    @cached_property
    def _counts(self) -> dict[PlanNode, Tally]:
        return count(self._problem, self._plan.choices, len(self.tiers))

    def _span(self, node: PlanNode, how: int, level: int = -1, slot: int = 0) -> Span:
        """The span of a node, which goes on with the slots of a level from ``slot`` on."""
        return (node.steps, node.level, node.slots, how, slot if node.level == level else 0)


@lru_cache(1 << 14)
def _binomial(steps: int, slots: int, how: int, slot: int, tier: int) -> tuple[Item, ...]:
    """What a span of binomial checkpointing in the fastest tier consists of; there are few, met often."""
    return tuple(
        Sub(item.offset, (item.span[0], -1, *item.span[1:], slot + slots - item.span[1]))
        if isinstance(item, Sub)
        else item
        for item in halves((steps, slots, how), slot, fewest_writes, tier)
    )
