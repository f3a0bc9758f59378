"""A plan for a graph: the steps to take, and what they are expected to cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..units import format_bytes, format_seconds
from .model import Graph


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a node; what it makes is there afterwards, once."""

    node: str


@dataclass(frozen=True, slots=True)
class Free:
    """Give the bytes of a storage back."""

    storage: str


@dataclass(frozen=True, slots=True)
class Offload:
    """Copy a storage to the host and give its bytes back."""

    storage: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring an offloaded storage back; the copy on the host goes."""

    storage: str


Step: TypeAlias = Compute | Free | Offload | Fetch


@dataclass(frozen=True)
class GraphPlan:
    """Steps that run a graph within a budget.

    ``overhead`` and ``bound`` are shares of the time of one run of every node: what the plan adds,
    and what any plan within the budget must add. ``memory`` is the budget, ``peak`` what is taken of
    it, both in bytes; ``minimum`` is the smallest budget that a plan was found for. ``stages`` says
    which solver stages improved the plan, and to what overhead. ``host`` is the budget for what is
    offloaded, ``host_peak`` what is taken of it, and ``transfer`` the bytes per second of the copies.
    """

    graph: Graph
    steps: tuple[Step, ...]
    memory: int | None
    peak: int
    overhead: float
    bound: float = 0.0
    minimum: int | None = None
    stages: tuple[tuple[str, float], ...] = ()
    host: int | None = None
    transfer: float | None = None
    host_peak: int = 0

    @property
    def gap(self) -> float:
        """How far the expected time is above the least that any plan could take."""
        return (1 + self.overhead) / (1 + self.bound) - 1

    @property
    def optimal(self) -> bool:
        """Whether no plan within the budget can be faster, to a hundred-thousandth of the time of the graph."""
        return self.overhead - self.bound <= 1e-5

    @property
    def time(self) -> float:
        """Expected time of all steps."""
        return self.graph.time * (1 + self.overhead)

    @cached_property
    def split(self) -> int:
        """How many steps belong to the forward pass: those before the first node of the backward pass."""
        node = self.graph.node
        turns = (i for i, step in enumerate(self.steps) if isinstance(step, Compute) and node[step.node].backward)
        return next(turns, len(self.steps))

    @property
    def forward(self) -> tuple[Step, ...]:
        """The steps before the first node of the backward pass."""
        return self.steps[: self.split]

    @property
    def backward(self) -> tuple[Step, ...]:
        """The steps from the first node of the backward pass on."""
        return self.steps[self.split :]

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """Storages that are there between the two passes, the caller's and the outputs left out."""
        alive: dict[str, None] = {}
        for step in self.forward:
            if isinstance(step, Compute):
                alive.update((s.name, None) for s in self.graph.node[step.node].makes)
            elif isinstance(step, Free | Offload):
                alive.pop(step.storage, None)
            else:
                alive[step.storage] = None
        return tuple(name for name in alive if name not in self.graph.kept)

    @cached_property
    def runs(self) -> Counter[str]:
        """How often each node is run."""
        return Counter(step.node for step in self.steps if isinstance(step, Compute))

    @property
    def replayed(self) -> dict[str, int]:
        """Nodes that are run again, with how often."""
        return {name: count - 1 for name, count in self.runs.items() if count > 1}

    @property
    def offloaded(self) -> dict[str, int]:
        """Storages that are copied to the host and back, with how often."""
        return dict(Counter(step.storage for step in self.steps if isinstance(step, Offload)))

    def __str__(self) -> str:
        nodes = self.graph.node
        extra = self.graph.time * self.overhead
        budget = "no limit" if self.memory is None else format_bytes(self.memory)
        proof = "proven optimal" if self.optimal else f"bound {self.bound:.2%}, gap {self.gap:.2%}"
        rows = [
            ("graph", f"{self.graph.name or 'unnamed'}, {len(self.graph)} operations"),
            ("peak", f"{format_bytes(self.peak)} of {budget}"),
            ("replayed", f"{len(self.replayed)} operations, {sum(self.replayed.values())} runs"),
            ("overhead", f"{self.overhead:.2%} ({format_seconds(extra)}), {proof}"),
        ]
        if self.offloaded or self.host is not None:
            moved = sum(count * self.graph.storage[name].bytes for name, count in self.offloaded.items())
            limit = "" if self.host is None else f" of {format_bytes(self.host)}"
            text = (
                f"{len(self.offloaded)} storages, {sum(self.offloaded.values())} times, {format_bytes(moved)} each way"
            )
            rows.insert(3, ("offloaded", f"{text}; {format_bytes(self.host_peak)}{limit} on the host"))
        if self.replayed:
            worst = sorted(self.replayed.items(), key=lambda item: -item[1] * nodes[item[0]].time)[:3]
            rows.append(("costliest", ", ".join(f"{name} × {count}" for name, count in worst)))
        if self.stages:
            rows.append(("found by", ", ".join(f"{stage} {overhead:.2%}" for stage, overhead in self.stages)))
        return "\n".join(f"{name:<10} {text}" for name, text in rows)
