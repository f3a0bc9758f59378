"""From a recorded step to the table that later ones run by: costs, the graph, the search."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from ....errors import BudgetError
from ....graph import GraphPlan, solve
from ....units import format_bytes
from ..model_plan import ModelPlan
from ..watch import SLACK
from .costs import prices
from .graph import Planned, graph_of
from .recorded import Recorded
from .room import OWN, SHARE
from .table import Table, table_of

_LATER = 3.0
"""Seconds for the search of a plan beside others: for another length, or another branch."""


class LivePlanner:
    """Plans recorded steps, with one budget."""

    def __init__(self, memory: int | None, time_limit: float, name: str) -> None:
        self.memory, self.time_limit, self.name = memory, time_limit, name
        self.made: list[ModelPlan] = []

    def plan(self, recorded: Recorded) -> Table:
        """The table of a recorded step."""
        wanted = [(each.signature, each.seconds) for each in recorded.seen.values() if each.signature is not None]
        wanted += [(each, turn.seconds) for turn in recorded.turns for each in turn.signatures]
        # What was alive at once in the step may be so again.
        known = prices(wanted, None if self.memory is None else max(self.memory, recorded.peak))
        on_device = any(each.device.startswith("cuda") for each, _ in wanted)
        planned = graph_of(recorded, known, 512 if on_device else 1, self.name)
        plan = self._solve(planned, recorded)
        table = table_of(recorded, planned, plan)
        table.everything = plan.peak if not plan.replayed else solve(planned.graph, None).peak
        self.made.append(
            ModelPlan(
                plan,
                fingerprint(recorded),
                asked=self.memory,
                engine="live",
                aside=recorded.small,
                moved=recorded.moved,
                unproven=recorded.unproven if plan.replayed else {},
            )
        )
        return table

    def _solve(self, planned: Planned, recorded: Recorded) -> GraphPlan:
        if self.memory is None:
            return solve(planned.graph, None)
        # Small values are not in the graph, and stay.
        aside = recorded.small
        budget = max(0, int(self.memory * (1 - SLACK)) - aside)
        seconds = self.time_limit if not self.made else min(self.time_limit, _LATER)
        try:
            return solve(planned.graph, budget, time_limit=seconds)
        except BudgetError as error:
            least = error.minimum
            if least is not None:
                least = math.ceil(max((least + aside) / (1 - SLACK), _recordable(recorded.peak))) + 1
            named = str(error) if least is None else f"the smallest budget found is {least:.0f} bytes"
            raise BudgetError(
                f"{self.name} does not fit into memory={self.memory} ({format_bytes(self.memory)}): {named}", least
            ) from error


def _recordable(peak: int) -> float:
    """The budget in which a step can be recorded that took so much with everything moved away that could be."""
    return min(peak + OWN, peak * SHARE / (SHARE - 1))


def fingerprint(recorded: Recorded) -> str:
    """What tells recorded programs apart."""
    facts: list[Any] = [str(each) for each in recorded.functions]
    facts += sorted(recorded.sizes.items())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
