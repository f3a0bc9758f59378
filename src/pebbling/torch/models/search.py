"""A budget under inductor: plan, compile, measure, and plan again until the measured peak is within it.

Inductor fuses and allocates on its own, so a plan only asks for a peak. A trial tells what it takes: if
that is too much, the next plan asks for less by the excess; if it is well below the budget and replays
cost time, for more. The plan with the least overhead among those that were measured within the budget
is kept, and no other is ever run for the caller. The last try is the plan with the smallest peak.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import fx

from ...errors import BudgetError
from ...graph import GraphPlan, load, save, solve
from ...units import format_bytes
from .fusion import Fused
from .inductor import Compiled, compile_with
from .model_plan import ModelPlan
from .planner import Planner, alike
from .trial import peak_of
from .watch import SLACK

TRIES = 4
"""Plans that are compiled for one budget at most."""

# Less room than this share of the budget, or less overhead than that of the time, is not worth another try.
_ROOM, _OVERHEAD = 0.05, 0.02


class Inductor:
    """Backend of torch.compile that runs inductor's code within a budget."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def __call__(self, module: fx.GraphModule, example: Sequence[Any]) -> Callable[..., Any]:
        """What runs the module; it is compiled when it is called, with the tensors that it is called with."""
        run: Callable[..., Any] | None = None

        def call(*arguments: Any) -> Any:
            nonlocal run
            if run is None:
                run = Search(self.planner, module).run(arguments)
            return run(*arguments)

        return call


@dataclass(frozen=True)
class Tried:
    """A compiled plan: what it was asked to take, and what it took."""

    compiled: Compiled
    asked: int
    least: bool
    """Whether no plan takes less."""
    peak: int
    """In bytes; as measured."""

    @property
    def overhead(self) -> float:
        """As planned."""
        return self.compiled.plan.overhead


class Search:
    """The search for one traced module."""

    def __init__(self, planner: Planner, module: fx.GraphModule) -> None:
        self.planner, self.module = planner, module
        self.memory = planner.memory
        self.tried: list[Tried] = []
        self.least = False
        """Whether the latest plan is the one that takes least."""
        self.known: int | None = None
        """Measured peak of a plan from the folder."""

    def run(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        """The best compiled plan within the budget; its plan is noted."""
        if self.memory is None:
            compiled = self._compile(arguments, None)
            self._note(compiled, None)
            return compiled.run
        ask: int | None = self.memory
        while ask is not None:
            compiled = self._compile(arguments, ask)
            if self.known is not None:
                self._note(compiled, self.known)
                return compiled.run
            self.tried.append(Tried(compiled, ask, self.least, self._measured(compiled, arguments)))
            ask = self._next(self.tried[-1])
        fitting = [each for each in self.tried if each.peak <= self.memory]
        if not fitting:
            raise self._refusal()
        best = min(fitting, key=lambda each: (each.overhead, each.peak))
        self._keep(best)
        self._note(best.compiled, best.peak)
        return best.compiled.run

    def _compile(self, arguments: Sequence[Any], ask: int | None) -> Compiled:
        def choose(what: Fused, fingerprint: str) -> GraphPlan:
            found = self._found(what, fingerprint) if not self.tried else None
            return self._solved(what, ask) if found is None else found

        return compile_with(choose, self.module, arguments, self.memory, self.planner.name)

    def _solved(self, what: Fused, ask: int | None) -> GraphPlan:
        """The best plan for a budget, or the one that takes least if that is too small."""
        if ask is not None and what.device is not None:
            ask = int(ask * (1 - SLACK))
        self.least = False
        try:
            return solve(what.graph, ask, time_limit=self.planner.time_limit)
        except BudgetError as error:
            self.least = True
            return solve(what.graph, error.minimum, time_limit=self.planner.time_limit)

    def _measured(self, compiled: Compiled, arguments: Sequence[Any]) -> int:
        changed = compiled.changed
        if changed is None:
            changed = frozenset(range(len(arguments)))
        peak = peak_of(compiled.run, arguments, changed, compiled.what.device)
        if peak is None:
            # Nobody knows how much: the next plan is asked for half.
            assert self.memory is not None
            return self.memory + compiled.plan.peak // 2 + 1
        return peak

    def _next(self, last: Tried) -> int | None:
        """What the next plan is to ask for; None if there is to be none."""
        assert self.memory is not None
        left = TRIES - len(self.tried)
        fitting = [each for each in self.tried if each.peak <= self.memory]
        over = [each for each in self.tried if each.peak > self.memory]
        if left == 0 or not last.compiled.what.later:
            return None
        if not fitting:
            if last.least:
                return None
            ask = min(last.asked, last.compiled.plan.peak) - int(1.05 * (last.peak - self.memory)) - 1
            return 0 if left == 1 else max(ask, 0)
        low = max(fitting, key=lambda each: each.asked)
        room = self.memory - low.peak
        if low.overhead < _OVERHEAD or room < _ROOM * self.memory:
            return None
        # What inductor takes more or less than planned is about the same for plans that are alike.
        ask = low.compiled.plan.peak + room
        if over:
            ask = min(ask, (low.asked + min(each.asked for each in over)) // 2)
        return ask if ask - low.asked > _ROOM * self.memory / 4 else None

    def _note(self, compiled: Compiled, peak: int | None) -> None:
        what = compiled.what
        plan = ModelPlan(compiled.plan, compiled.fingerprint, what.estimated, "inductor", self.memory, peak)
        self.planner.made.append(plan)

    def _refusal(self) -> BudgetError:
        least = self.tried[-1].peak
        return BudgetError(
            f"{self.planner.name or 'the model'} does not fit into memory={self.memory} "
            f"({format_bytes(self.memory or 0)}) with backend='inductor': of the plans that were compiled and measured "
            f"({len(self.tried)}), the one with the smallest peak takes {least} bytes ({format_bytes(least)})",
            least,
        )

    def _keep(self, best: Tried) -> None:
        if self.planner.folder is None:
            return
        self.planner.folder.mkdir(parents=True, exist_ok=True)
        plan, peak = self._paths(self.planner.folder, best.compiled.fingerprint)
        mine = f"{os.getpid()}-"
        save(best.compiled.plan, plan.with_name(mine + plan.name))
        peak.with_name(mine + peak.name).write_text(json.dumps({"measured": best.peak}), encoding="utf-8")
        for path in (plan, peak):
            path.with_name(mine + path.name).replace(path)

    def _found(self, what: Fused, fingerprint: str) -> GraphPlan | None:
        """A plan that was measured within this budget before."""
        if self.planner.folder is None or self.memory is None:
            return None
        plan, peak = self._paths(self.planner.folder, fingerprint)
        if not (plan.exists() and peak.exists()):
            return None
        known = load(plan)
        if not isinstance(known, GraphPlan) or not alike(known.graph, what.graph):
            return None
        self.known = int(json.loads(peak.read_text(encoding="utf-8"))["measured"])
        return known

    def _paths(self, folder: Path, fingerprint: str) -> tuple[Path, Path]:
        stem = f"{fingerprint}-inductor-{self.memory}"
        return folder / f"{stem}.json.gz", folder / f"{stem}-peak.json"
