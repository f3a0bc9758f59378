"""From a recorded step to the table that later ones run by: costs, the graph, the search."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch

from ....errors import BudgetError
from ....graph import Graph, GraphPlan, solve
from ....logs import note
from ....units import format_bytes
from ..model_plan import ModelPlan
from ..watch import SLACK
from ..wishes import Wishes
from .costs import prices
from .graph import Planned, graph_of
from .host import PAGE, rate
from .recorded import FOREIGN, UNSEEN, Recorded
from .room import recordable
from .table import Table, table_of

_HIDDEN = 0.8
"""Part of the forward pass in which copies can hide."""
_COPIES = 0.015
"""Share of the budget that stays free on a GPU where values go to the host: on an H200 a step was 0.4 % over it."""
_LATER = 3.0
"""Seconds for the search of a plan beside others: for another length, or another branch."""


class LivePlanner:
    """Plans recorded steps, with one budget."""

    def __init__(
        self,
        memory: int | None,
        time_limit: float,
        name: str,
        host: int | None = None,
        group: Any = None,
        keep: Wishes = (),
        never_replay: Wishes = (),
    ) -> None:
        self.memory, self.time_limit, self.name, self.host, self.group = memory, time_limit, name, host, group
        self.keep, self.never_replay = keep, never_replay
        self.made: list[ModelPlan] = []

    def plan(self, recorded: Recorded) -> Table:
        """The table of a recorded step."""
        wanted = [(each.signature, each.seconds) for each in recorded.seen.values() if each.signature is not None]
        wanted += [(each, turn.seconds) for turn in recorded.turns for each in turn.signatures]
        # What was alive at once in the step may be so again.
        known = prices(wanted, None if self.memory is None else max(self.memory, recorded.peak))
        on_device = any(each.device.startswith("cuda") for each, _ in wanted)
        planned = graph_of(recorded, known, 512 if on_device else 1, self.name)
        device = torch.device("cuda", torch.cuda.current_device()) if on_device else torch.device("cpu")
        plan = self._agreed(planned, recorded, device)
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
        note("fit: %s, a plan of %s: %.1f %% more time", self.name, format_bytes(plan.peak), 100 * plan.overhead)
        return table

    def _agreed(self, planned: Planned, recorded: Recorded, device: torch.device) -> GraphPlan:
        """The plan, that of the first rank where several are to run by one."""
        if self.group is None:
            return self._solve(planned, recorded, device)
        from ..ranks import agree

        # What may run again on one rank must be what may on the others, for the plan may ask for it.
        may = "".join("01"[each.again] for each in recorded.seen.values())
        own = fingerprint(recorded) + hashlib.sha256(f"{may} {self.host}".encode()).hexdigest()[:16]
        return agree(self.group, own, self.memory, lambda: self._solve(planned, recorded, device), "ran another step")

    def _solve(self, planned: Planned, recorded: Recorded, device: torch.device) -> GraphPlan:
        if self.memory is None:
            return solve(planned.graph, None)
        # Small values are not in the graph, and stay.
        aside = recorded.small
        slack = SLACK + (_COPIES if self.host is not None and device.type == "cuda" else 0.0)
        budget = max(0, int(self.memory * (1 - slack)) - aside)
        seconds = self.time_limit if not self.made else min(self.time_limit, _LATER)
        try:
            keep, once = planned.made_in(self.keep), planned.made_in(self.never_replay)
            if self.host is None:
                return solve(planned.graph, budget, time_limit=seconds, keep=keep, never_replay=once)
            stay = [node.name for node in planned.graph.nodes if node.op == UNSEEN]
            stay += [f"f{n}" for n, seen in recorded.seen.items() if seen.why == FOREIGN and f"f{n}" in planned.members]
            stay = list(dict.fromkeys([*stay, *keep]))
            return _with_host(planned.graph, budget, seconds, self.host, rate(device, self.memory), stay, once)
        except BudgetError as error:
            least = error.minimum
            if least is not None:
                least = math.ceil(max((least + aside) / (1 - slack), recordable(recorded.peak))) + 1
            named = str(error) if least is None else f"the smallest budget found is {least:.0f} bytes"
            raise BudgetError(
                f"{self.name} does not fit into memory={self.memory} ({format_bytes(self.memory)}): {named}", least
            ) from error


def _with_host(
    graph: Graph, budget: int, seconds: float, room: int, transfer: float, stay: list[str], once: list[str]
) -> GraphPlan:
    """A plan with copies, all of which have a place of their own on the host.

    Copies that are shorter in all than the forward pass can hide behind it, and those back behind the rest: they are
    planned as if they took a tenth of their time. Where that is not enough, they take what they take.
    """
    hidden = int(min(room, _HIDDEN * transfer * sum(node.time for node in graph.nodes if not node.backward)))
    found: list[GraphPlan] = []
    refused: BudgetError | None = None
    for bytes, speed in ((hidden, 10 * transfer), (room, transfer), (room // 2, transfer)):
        try:
            plan = None
            if bytes > 0:
                plan = solve(graph, budget, seconds / 2, host=bytes, transfer=speed, keep=stay, never_replay=once)
        except BudgetError as error:
            refused = error
            continue
        if plan is not None and placed(plan) <= room:
            found.append(plan)
        if len(found) == 2:
            break
    if not found:
        if refused is None:
            return solve(graph, budget, time_limit=seconds, keep=stay, never_replay=once)
        raise refused
    return min(found, key=lambda plan: plan.overhead)


def placed(plan: GraphPlan) -> int:
    """Bytes that the values that a plan moves take on the host, each at a place of its own."""
    return sum(plan.graph.storage[name].bytes + PAGE for name in plan.offloaded)


def fingerprint(recorded: Recorded) -> str:
    """What tells recorded programs apart."""
    facts: list[Any] = [str(each) for each in recorded.functions]
    facts += sorted(recorded.sizes.items())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
