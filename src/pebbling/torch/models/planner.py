"""From a captured graph to a plan: the solver, plans made before, and what was measured since."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import fx

from ...errors import BudgetError
from ...graph import Graph, GraphPlan, check, load, save, solve
from ...units import format_bytes
from .captured import Captured, capture
from .model_plan import ModelPlan
from .partition import copied
from .rows import has_loss
from .watch import SLACK

# Seconds for a first look at a graph of which there are two.
_QUICK = 3.0


@dataclass
class Planner:
    """Makes plans for captured graphs, with one budget."""

    memory: int | None
    time_limit: float = 30.0
    folder: Path | None = None
    group: Any = None
    name: str = ""
    made: list[ModelPlan] = field(default_factory=list)
    excess: dict[str, int] = field(default_factory=dict)
    """Bytes by which measured steps were over the budget, by fingerprint."""
    outdated: bool = False
    """Whether a plan is to be made again."""

    def plan(self, module: fx.GraphModule, forward_outputs: int, mutated: list[str]) -> tuple[Captured, GraphPlan]:
        """A captured graph and its plan, from the folder if it is there."""
        ways = self._ways(module, forward_outputs, mutated)
        result = self._agreed(ways)
        captured = next(way for way in ways if alike(way.graph, result.graph))
        estimated = any(cost.estimated for cost in captured.costs.values())
        self.made.append(ModelPlan(result, captured.fingerprint, estimated, plain=ways[0].graph.time))
        return captured, result

    def _ways(self, module: fx.GraphModule, forward_outputs: int, mutated: list[str]) -> list[Captured]:
        """The graph as it is, and where a budget may ask for it the one whose loss runs some rows at a time."""
        other = copied(module) if self.memory is not None and has_loss(module) else None
        ways = [capture(module, forward_outputs, mutated, self.memory, self.name)]
        if other is not None:
            ways.append(capture(other, forward_outputs, mutated, self.memory, self.name, parts=True))
        return ways

    def seen(self, captured: Captured, plan: ModelPlan, peak: int) -> None:
        """Note the measured peak of a plan; one that is over the budget is made again at the next call."""
        object.__setattr__(plan, "measured", peak)
        if self.memory is not None and peak > self.memory:
            excess = self.excess.get(captured.fingerprint, 0)
            # Twice as much each time at least: a little more might give the same plan, call after call.
            self.excess[captured.fingerprint] = excess + max(peak - self.memory, excess, int(self.memory * SLACK))
            self.outdated = True

    def budget(self, captured: Captured) -> int | None:
        """What a plan may take: on a GPU a little less than the budget, see ``watch``."""
        if self.memory is None or captured.device is None:
            return self.memory
        return max(0, int(self.memory * (1 - SLACK)) - self.excess.get(captured.fingerprint, 0))

    def _agreed(self, ways: list[Captured]) -> GraphPlan:
        if self.group is None:
            return self._found(ways)
        from .ranks import agree

        return agree(self.group, ways[0].fingerprint, self.memory, lambda: self._found(ways))

    def _found(self, ways: list[Captured]) -> GraphPlan:
        path = self._path(ways[0])
        if path is not None and path.exists():
            known = kept(path)
            # A name can be given to any file: what counts is what the plan was made for.
            fits = known is not None and known.memory == self.budget(ways[0])
            if known is not None and fits and any(alike(known.graph, way.graph) for way in ways):
                return known
        plan = self._better(ways)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{os.getpid()}-{path.name}")
            save(plan, partial)
            partial.replace(path)
        return plan

    def _better(self, ways: list[Captured]) -> GraphPlan:
        """The faster plan, of those for the graph as it is and for the one in parts."""
        if len(ways) == 1:
            return self._solve(ways[0])
        plain, parts = ways
        quick, refused = self._tried(plain, min(self.time_limit, _QUICK))
        if quick is not None and not quick.overhead:
            return quick
        plan, also = self._tried(parts, self.time_limit)
        if refused is not None and also is not None:
            raise min(refused, also, key=lambda error: math.inf if error.minimum is None else error.minimum)
        if plan is not None and (quick is None or plan.time < quick.time):
            return plan
        return self._solve(plain, start=quick)

    def _tried(self, captured: Captured, seconds: float) -> tuple[GraphPlan | None, BudgetError | None]:
        try:
            return self._solve(captured, seconds), None
        except BudgetError as error:
            return None, error

    def _solve(self, captured: Captured, seconds: float | None = None, start: GraphPlan | None = None) -> GraphPlan:
        seconds = self.time_limit if seconds is None else seconds
        try:
            return solve(captured.graph, self.budget(captured), time_limit=seconds, start=start)
        except BudgetError as error:
            least = error.minimum
            if least is not None and captured.device is not None:
                least = math.ceil((least + self.excess.get(captured.fingerprint, 0)) / (1 - SLACK)) + 1
            named = str(error) if least is None else f"the smallest budget found is {least:.0f} bytes"
            raise BudgetError(
                f"{captured.graph.name or 'the model'} does not fit into memory={self.memory} "
                f"({format_bytes(self.memory or 0)}): {named}",
                least,
            ) from error

    def _path(self, captured: Captured) -> Path | None:
        if self.folder is None:
            return None
        budget = self.budget(captured)
        return self.folder / f"{captured.fingerprint}-{'all' if budget is None else budget}.json.gz"


def kept(path: Path) -> GraphPlan | None:
    """The plan in a file of the folder; None, with a warning, if there is none that can be read and holds."""
    try:
        plan = load(path)
        if not isinstance(plan, GraphPlan):
            raise ValueError("a graph without a plan")
        if plan.memory is not None and check(plan).peak > plan.memory:
            raise ValueError(f"it takes more than the {plan.memory} bytes that it was made for")
        return plan
    # Whatever the decompressor, the parser and the checks make of damaged bytes.
    except Exception as error:
        warnings.warn(
            f"the plan in {os.fspath(path)!r} can't be used and is made again: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def alike(mine: Graph, theirs: Graph) -> bool:
    """Whether a plan for one graph is one for the other: all but the times, which differ from run to run."""

    def facts(graph: Graph) -> list[object]:
        return [graph.inputs, graph.outputs, *((n.name, n.reads, n.makes, n.after, n.workspace) for n in graph.nodes)]

    return facts(mine) == facts(theirs)
