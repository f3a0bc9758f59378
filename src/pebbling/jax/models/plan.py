"""The plan of a function: what is kept, what is made again, and what XLA takes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...graph import Graph, GraphPlan
from ...units import format_bytes


@dataclass(frozen=True)
class FunctionPlan:
    """A plan for a function and its gradient.

    ``peak`` is what was measured: XLA's temporary memory of the compiled gradient, with the results and gradients
    that it hands out. ``plain`` is the same without a plan. ``overhead`` is the work done again, as a share of all
    work, as the graph counts it; ``compiled`` says how many programs were compiled to find the plan.
    """

    graph_plan: GraphPlan
    memory: int | None
    peak: int
    plain: int
    compiled: int = 1

    @property
    def graph(self) -> Graph:
        """The operations, with their costs."""
        return self.graph_plan.graph

    @property
    def overhead(self) -> float:
        """What is made again, as a share of the time of the graph."""
        return self.graph_plan.overhead

    @property
    def kept(self) -> tuple[str, ...]:
        """What stays from the way there to the way back."""
        return self.graph_plan.saved

    @property
    def replayed(self) -> dict[str, int]:
        """Operations that are run again, with how often."""
        return self.graph_plan.replayed

    def __str__(self) -> str:
        limit = "no limit" if self.memory is None else format_bytes(self.memory)
        rows = [line for line in str(self.graph_plan).splitlines() if not line.startswith("peak ")]
        rows.insert(1, f"{'peak':<10} {format_bytes(self.peak)} of {limit}; plain {format_bytes(self.plain)}")
        return "\n".join(rows)


@dataclass(frozen=True)
class Deviation:
    """How far two gradients are apart: whether all bits agree, and the largest difference.

    ``relative`` is that difference beside the largest entry of the plain gradient.
    """

    equal: bool
    relative: float

    @classmethod
    def between(cls, found: Any, plain: Any) -> Deviation:
        """The deviation of a gradient from the plain one."""
        pairs = [
            (np.asarray(a, np.complex128), np.asarray(b, np.complex128))
            for a, b in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(plain), strict=True)
        ]
        scale = max((float(np.max(np.abs(b), initial=0.0)) for _, b in pairs), default=0.0)
        apart = max((float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs), default=0.0)
        equal = all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
        return cls(equal, apart / scale if scale else apart)
