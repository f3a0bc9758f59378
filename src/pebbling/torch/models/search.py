"""A budget under inductor: plan, compile, measure, and plan again until the measured peak is within it.

Inductor fuses and allocates on its own, so a plan only asks for a peak, and a trial tells what it takes.
``tries`` says which plans are made. Of those that were measured within the budget the fastest is kept, as
measured in turns, and no other is ever run for the caller.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, fx

from ...errors import BudgetError
from ...graph import GraphPlan, save, solve
from ...units import format_bytes
from .fusion import Fused
from .inductor import Compiled, compile_with
from .model_plan import ModelPlan
from .planner import Planner, alike, kept
from .refusals import refuse
from .trial import peak_of, times_of
from .tries import Tried, Tries, Trying
from .watch import SLACK


class Inductor:
    """Backend of torch.compile that runs inductor's code within a budget."""

    kind = "inductor"

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def __call__(self, module: fx.GraphModule, example: Sequence[Any]) -> Callable[..., Any]:
        """What runs the module; it is compiled when it is called, with the tensors that it is called with."""
        refuse(module, self.planner.name, exact=False)
        run: Callable[..., Any] | None = None

        def call(*arguments: Any) -> Any:
            nonlocal run
            if run is None:
                run = Search(self.planner, module).run(arguments)
            return run(*arguments)

        return call


class Known(NamedTuple):
    """A plan from the folder, the cut that it begins with, and its measured peak."""

    plan: GraphPlan
    freely: bool
    peak: int


class Search:
    """The search for one traced module."""

    def __init__(self, planner: Planner, module: fx.GraphModule) -> None:
        self.planner, self.module = planner, module
        self.memory = planner.memory
        self.slack = 0.0
        """Share of the budget that is left to the allocator."""
        self.trying: Trying | None = None
        self.tried = 0
        self.least = False
        """Whether the latest plan is the one that takes least."""
        self.known: Known | None = None
        """What the folder says."""

    def run(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        """The best compiled plan within the budget; its plan is noted."""
        if self.memory is None:
            compiled = self._compile(arguments)
            self._note(compiled, None)
            return compiled.run
        # On a GPU the next step may take a little more than the measured one, see ``watch``.
        self.slack = SLACK if any(isinstance(each, Tensor) and each.is_cuda for each in arguments) else 0.0
        tries = Tries(int(self.memory * (1 - self.slack)))
        while (trying := tries.following()) is not None:
            self.trying = trying
            compiled = self._compile(arguments)
            if self.known is not None:
                self._note(compiled, self.known.peak)
                return compiled.run
            peak = self._peak(compiled, arguments, tries.memory)
            tries.made.append(Tried(compiled, self.trying.freely, self.trying.ask, self.least, peak))
            self.tried = len(tries.made)
        if not tries.fitting:
            raise self._refusal(tries)
        best = _fastest(tries.fitting, arguments)
        self._keep(best)
        self._note(best.compiled, best.peak)
        return best.compiled.run

    def freely(self, fingerprint: str) -> bool:
        """Which cut to begin with."""
        if self.trying is None:
            return False
        if self.tried == 0:
            self.known = self._read(fingerprint)
        if self.known is not None:
            self.trying = self.trying._replace(freely=self.known.freely)
        return self.trying.freely

    def plan(self, what: Fused, fingerprint: str) -> GraphPlan:
        """The plan from the folder, or the best one for what is asked now."""
        if self.known is not None and alike(self.known.plan.graph, what.graph):
            return self.known.plan
        self.known = None
        return self._solved(what, None if self.trying is None else self.trying.ask)

    def _compile(self, arguments: Sequence[Any]) -> Compiled:
        return compile_with(self, self.module, arguments, self.memory, self.planner.name)

    def _solved(self, what: Fused, ask: int | None) -> GraphPlan:
        """The best plan for a budget, or the one that takes least if that is too small."""
        self.least = False
        try:
            return solve(what.graph, ask, time_limit=self.planner.time_limit)
        except BudgetError as error:
            self.least = True
            return solve(what.graph, error.minimum, time_limit=self.planner.time_limit)

    def _peak(self, compiled: Compiled, arguments: Sequence[Any], memory: int) -> int:
        peak = peak_of(compiled.run, arguments, _changed(compiled, arguments), compiled.what.device)
        # If the device has not that much, nobody knows how much it is: the next plan is asked for half.
        return memory + compiled.plan.peak // 2 + 1 if peak is None else peak

    def _note(self, compiled: Compiled, peak: int | None) -> None:
        what = compiled.what
        plan = ModelPlan(compiled.plan, compiled.fingerprint, what.estimated, "inductor", self.memory, peak)
        self.planner.made.append(plan)

    def _refusal(self, tries: Tries) -> BudgetError:
        peak = min(each.peak for each in tries.made)
        least = math.ceil(peak / (1 - self.slack)) + bool(self.slack)
        return BudgetError(
            f"{self.planner.name or 'the model'} does not fit into memory={self.memory} "
            f"({format_bytes(self.memory or 0)}) with backend='inductor': of the plans that were compiled and measured "
            f"({len(tries.made)}), the one with the smallest peak fits into {least} bytes ({format_bytes(least)})",
            least,
        )

    def _keep(self, best: Tried) -> None:
        if self.planner.folder is None:
            return
        self.planner.folder.mkdir(parents=True, exist_ok=True)
        plan, facts = self._paths(self.planner.folder, best.compiled.fingerprint)
        mine = f"{os.getpid()}-"
        save(best.plan, plan.with_name(mine + plan.name))
        told = json.dumps({"measured": best.peak, "freely": best.freely, "memory": self.memory})
        facts.with_name(mine + facts.name).write_text(told, encoding="utf-8")
        for path in (plan, facts):
            path.with_name(mine + path.name).replace(path)

    def _read(self, fingerprint: str) -> Known | None:
        """A plan that was measured within this budget before."""
        if self.planner.folder is None or self.memory is None:
            return None
        plan, facts = self._paths(self.planner.folder, fingerprint)
        if not (plan.exists() and facts.exists()):
            return None
        known = kept(plan)
        try:
            told = json.loads(facts.read_text(encoding="utf-8"))
            freely, measured, memory = bool(told["freely"]), int(told["measured"]), int(told["memory"])
        except (ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{os.fspath(facts)!r} does not say what its plan took, which is tried again: {error!r}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        if known is None or memory != self.memory or measured > self.memory:
            return None
        return Known(known, freely, measured)

    def _paths(self, folder: Path, fingerprint: str) -> tuple[Path, Path]:
        stem = f"{fingerprint}-inductor-{self.memory}"
        return folder / f"{stem}.json.gz", folder / f"{stem}-measured.json"


def _fastest(fitting: list[Tried], arguments: Sequence[Any]) -> Tried:
    if len(fitting) == 1:
        return fitting[0]
    some = fitting[0].compiled
    times = times_of([each.compiled.run for each in fitting], arguments, _changed(some, arguments), some.what.device)
    return fitting[times.index(min(times))]


def _changed(compiled: Compiled, arguments: Sequence[Any]) -> frozenset[int]:
    """Arguments that a step may change in place: all, if torch does not tell."""
    return frozenset(range(len(arguments))) if compiled.changed is None else compiled.changed
