"""The plan of a model: what is kept, what is replayed, and what that costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ...graph import Graph, GraphPlan, Step, load, save
from ...units import format_bytes


@dataclass(frozen=True)
class ModelPlan:
    """A plan for one captured graph; ``estimated`` if some costs could not be measured."""

    graph_plan: GraphPlan
    fingerprint: str = ""
    estimated: bool = False
    backend: str = "eager"
    asked: int | None = None
    """The budget under inductor, where a plan may be made for another one to be measured within it."""
    measured: int | None = field(default=None, compare=False)
    """Peak of a measured step, in bytes: under inductor of a trial, on a GPU in eager mode of the first one."""
    plain: float | None = field(default=None, compare=False)
    """Seconds of one forward and backward pass as the model runs them by itself, if that is not the graph's time."""
    engine: str = "captured"
    """What runs the plan: "live" runs the program itself, "captured" a graph that was traced."""
    aside: int = 0
    """Bytes of values that are too small for the graph; they stay, and count."""
    unproven: dict[str, int] = field(default_factory=dict)
    """Operations that are not run again, with the reason, and the bytes that are kept for it."""
    moved: int = 0
    """Bytes that the recorded step moved away, to stay within the budget before there was a plan."""

    @property
    def graph(self) -> Graph:
        """Operations and storages of the model, with their costs."""
        return self.graph_plan.graph

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is run and freed, in order."""
        return self.graph_plan.steps

    @property
    def memory(self) -> int | None:
        """The budget, in bytes."""
        return self.graph_plan.memory if self.backend == "eager" and self.engine == "captured" else self.asked

    @property
    def peak(self) -> int:
        """Bytes above the start at the worst moment; under inductor as measured, if it was."""
        return self.planned if self.backend == "eager" or self.measured is None else self.measured

    @property
    def planned(self) -> int:
        """Bytes that the plan expects at the worst moment; under inductor no more than a guess."""
        return self.graph_plan.peak + self.aside

    @property
    def overhead(self) -> float:
        """Time beyond one forward and backward pass, as a share of that."""
        return self.share(self.graph_plan.overhead)

    @property
    def bound(self) -> float:
        """What any plan within the budget must add, of those that run the operations as this one does."""
        return self.share(self.graph_plan.bound)

    @property
    def in_parts(self) -> float:
        """What running a loss some rows at a time adds to the time, as a share of it; part of the overhead."""
        return self.share(0.0)

    def share(self, share: float) -> float:
        """A share of the graph's time as one of the model's own, which a loss in parts may be faster than."""
        return share if not self.plain else max(0.0, (1 + share) * self.graph.time / self.plain - 1)

    @property
    def gap(self) -> float:
        """How far the expected time is above the least that any plan could take."""
        return self.graph_plan.gap

    @property
    def kept(self) -> tuple[str, ...]:
        """Storages that stay from the forward to the backward pass."""
        return self.graph_plan.saved

    @property
    def replayed(self) -> dict[str, int]:
        """Operations that are run again, with how often."""
        return self.graph_plan.replayed

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return any(node.backward for node in self.graph.nodes)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page about the plan."""
        from .report import page

        Path(path).write_text(page(self), encoding="utf-8")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, with its graph, to a file."""
        save(self.graph_plan, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelPlan:
        """What ``save`` wrote."""
        plan = load(path)
        if not isinstance(plan, GraphPlan):
            raise ValueError(f"{os.fspath(path)!r} holds a graph without a plan")
        return cls(plan)

    def __str__(self) -> str:
        if self.backend == "eager":
            rows = str(self.graph_plan).splitlines()
            if self.engine == "live":
                budget = "no limit" if self.memory is None else format_bytes(self.memory)
                rows[1] = f"{'peak':<10} {format_bytes(self.peak)} of {budget}"
            return "\n".join([*rows, *(f"{name:<10} {text}" for name, text in self._told())])
        budget = "no limit" if self.asked is None else format_bytes(self.asked)
        peak = "not measured" if self.measured is None else f"measured {format_bytes(self.measured)}"
        rows = [line for line in str(self.graph_plan).splitlines() if not line.startswith("peak ")]
        rows = [line.replace("overhead  ", "overhead   planned", 1) for line in rows]
        rows[1:1] = [
            f"{'backend':<10} {self.backend}",
            f"{'peak':<10} {peak} of {budget}; planned {format_bytes(self.planned)}",
        ]
        return "\n".join(rows)

    def _told(self) -> list[tuple[str, str]]:
        rows = [("engine", self.engine)]
        if self.in_parts:
            rows.append(("in parts", f"{self.in_parts:.2%} more, as the loss runs some rows at a time"))
        if self.moved:
            rows.append(("moved", f"{format_bytes(self.moved)} out of the way in the step that was recorded"))
        most = sorted(self.unproven.items(), key=lambda item: -item[1])[:3]
        if most:
            rows.append(("kept", ", ".join(f"{name} ({format_bytes(bytes)})" for name, bytes in most)))
        return rows
