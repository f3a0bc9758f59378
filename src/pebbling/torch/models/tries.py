"""Which plans are compiled for a budget, one after the other: the policy of ``search``, without compiling anything.

torch's own cut comes first; if it fits as it is, nothing else is tried. Else each of the two cuts where
planning can begin (see ``cut``) gets a plan, and another one while it is measured above the budget, which
asks for less by the excess: what inductor takes more than planned is about the same for plans that are
alike. The last try, if nothing has fitted, is the plan that takes least. If there is a plan that fits, and
by what was measured torch's own cut would fit as it is, that is tried after all, or with a replay or two if
it was above the budget by little; and if replays cost time and room is left, a plan that takes more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...graph import GraphPlan, solve
from .inductor import Compiled

TRIES = 5
"""Plans that are compiled for one budget at most."""

_CHANCES = 3
"""Plans for one cut at most, if one for the other fits."""

# Less room than this share of the budget, or less overhead than that of the time, is not worth another try.
_ROOM, _OVERHEAD = 0.05, 0.02
_LITTLE = 0.05
"""Share of the budget above which torch's own cut is too large for a plan that hardly differs from it."""


class Trying(NamedTuple):
    """A plan to be made: the cut that it begins with, and the bytes that it may take."""

    freely: bool
    ask: int


@dataclass(frozen=True)
class Tried:
    """A compiled plan: what it was asked to take, and what it took."""

    compiled: Compiled
    freely: bool
    asked: int
    least: bool
    """Whether no plan that begins with this cut takes less."""
    peak: int
    """In bytes; as measured."""

    @property
    def plan(self) -> GraphPlan:
        """What was compiled."""
        return self.compiled.plan

    @cached_property
    def everything(self) -> int:
        """Bytes that the cut would take as it is, as planned."""
        return solve(self.plan.graph, None).peak


@dataclass
class Tries:
    """What has been tried for a budget of ``memory`` bytes, and what is next."""

    memory: int
    made: list[Tried] = field(default_factory=list)

    @property
    def fitting(self) -> list[Tried]:
        """Those that were measured within the budget."""
        return [each for each in self.made if each.peak <= self.memory]

    def following(self) -> Trying | None:
        """What to try next, if anything."""
        if not self.made:
            return Trying(False, self.memory)
        last, left, fitting = self.made[-1], TRIES - len(self.made), self.fitting
        as_it_is = any(not each.freely and not each.plan.replayed for each in fitting)
        if left == 0 or as_it_is or not last.compiled.what.later:
            return None
        if not any(each.freely for each in self.made):
            return Trying(True, self._corrected(last))
        own = [each for each in self.made if not each.freely]
        enough = [self._corrected(each) for each in own if each.peak <= self.memory]
        if any(ask >= own[0].everything for ask in enough) and all(each.plan.replayed for each in own):
            return Trying(False, max(own[0].everything, *enough))
        quick = any(each.plan.overhead < _OVERHEAD for each in fitting)
        if quick and len(own) == 1 and self.memory < own[0].peak <= (1 + _LITTLE) * self.memory:
            # What the other cut computes twice has no price in its plan, and may take longer.
            return Trying(False, self._corrected(own[0]))
        over = [] if quick else [tries[-1] for tries in self._by_cut() if self._unsettled(tries)]
        if over:
            nearest = min(over, key=lambda each: each.peak)
            return Trying(nearest.freely, 0 if left == 1 and not fitting else self._corrected(nearest))
        return None if quick or not fitting else self._roomier(min(fitting, key=lambda each: each.plan.time))

    def _by_cut(self) -> list[list[Tried]]:
        return [[each for each in self.made if each.freely is freely] for freely in (False, True)]

    def _unsettled(self, tries: list[Tried]) -> bool:
        """Whether a cut may have a plan that fits, and has not had its chances."""
        enough = len(tries) >= _CHANCES and self.fitting
        return min(each.peak for each in tries) > self.memory and not tries[-1].least and not enough

    def _corrected(self, tried: Tried) -> int:
        """What to ask for so that just the budget is taken."""
        room = self.memory - tried.peak
        if room >= 0:
            return tried.plan.peak + room
        return max(min(tried.asked, tried.plan.peak) + int(1.05 * room) - 1, 0)

    def _roomier(self, best: Tried) -> Trying | None:
        """A plan that takes more and repeats less, if there is room."""
        if self.memory - best.peak < _ROOM * self.memory:
            return None
        over = [each.asked for each in self.made if each.freely is best.freely and each.peak > self.memory]
        ask = min([self._corrected(best), *((best.asked + each) // 2 for each in over)])
        return Trying(best.freely, ask) if ask - best.asked > _ROOM * self.memory / 4 else None
