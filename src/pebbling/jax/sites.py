"""Which loop of a program is which, and how many slots each of them gets.

A budget for a whole program is divided among its loops after the program was traced once. It is then traced
again, and each loop looks up its part: under ``jax.jit``, whose caches know of this value, so that no part of an
older trace is taken for the new one. A loop is told from others by its line, its length and its types; loops
that agree in all three, such as those of an unrolled Python loop, get the same number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from . import compat, tracers
from .primitives import LoopPlan

UNKNOWN_LENGTH_SLOTS = 64
"""Slots of a loop whose length is known at run time only: to 2145 steps no step is advanced more than twice."""


@dataclass(frozen=True)
class Site:
    """A loop in the user's program."""

    where: str
    steps: int | None
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where} ({'an unknown number of' if self.steps is None else self.steps} steps)"


def site_of(steps: int | None, values: Sequence[Any], where: str | None = None) -> Site:
    """The site of a loop that carries ``values``; at the line of the user's that calls, if none is given."""
    length = -1 if steps is None else steps
    types = tuple(compat.aval_of(v).str_short() for v in values)
    return Site(where or tracers.calling_line(), None if length < 0 else length, types)


@dataclass(frozen=True)
class Shares:
    """How many slots each loop of a program gets: one if it is not named; or all loops plain, where that can be."""

    slots: tuple[tuple[Site, int], ...] = ()
    plain: bool = False
    most: tuple[tuple[Site, int], ...] = ()  # the bytes of one snapshot, where no more is allowed

    def plan(self, site: Site) -> LoopPlan | None:
        """The plan of a loop; ``None`` for a plain one."""
        if self.plain and site.steps is not None:
            return None
        slots = UNKNOWN_LENGTH_SLOTS if self.plain else dict(self.slots).get(site, 1)
        most = dict(self.most).get(site)
        return LoopPlan(slots if site.steps is None else min(slots, max(1, site.steps - 1)), None, site, most)

    def bounded(self, most: dict[Site, int]) -> Shares:
        """The same, refusing snapshots that are larger than those that it was made for."""
        return replace(self, most=tuple(sorted(most.items(), key=lambda pair: str(pair[0]))))


_make: Any = jax.make_user_context
current: Any = _make(None)
"""The division of the program that is being traced, if it has a budget as a whole."""
