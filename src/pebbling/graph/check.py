"""The abstract machine that proves a plan for a graph valid, and counts what it takes.

It knows nothing of how the plan was found. Every step is held against these rules:

1.  a node runs when all that it reads is there, and after the nodes that it is to run after;
2.  a node of the backward pass, and one that can't be replayed, runs once; every node runs at least once;
3.  when the backward pass begins, every output of the forward pass is there;
4.  a run takes the bytes of all that the node makes and of its workspace, on top of what is there; a
    result that is there already is dropped as soon as the run ends, and so is the workspace;
5.  what is freed or offloaded is there, is not the caller's, and is no output;
6.  what is fetched is on the host and not here;
7.  at the end the outputs are there and nothing else is, here or on the host;
8.  no more than the budget is ever taken, here and on the host.

The caller's storages take nothing. Steps come one after the other: time is that of the runs and, with
``transfer`` in bytes per second, of the copies to and from the host, during which nothing else runs.
What is offloaded takes its bytes here until the copy is done, and what is fetched from its beginning on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from ..errors import ScheduleError
from ..units import format_bytes
from .model import Graph
from .plan import Compute, Fetch, Free, GraphPlan, Offload, Step


@dataclass(frozen=True)
class GraphCost:
    """What the machine counted: bytes at the worst moment, time, and that share of it which is replays and copies."""

    peak: int
    time: float
    overhead: float
    runs: int
    curve: tuple[int, ...]
    """Bytes taken during each step."""
    host_peak: int = 0

    @property
    def worst(self) -> int:
        """Position of the step that takes the most."""
        return self.curve.index(self.peak) if self.curve else 0


def check(plan: GraphPlan) -> GraphCost:
    """Run a plan on the abstract machine; its cost as counted, or a ``ScheduleError``."""
    cost = simulate(plan.graph, plan.steps, plan.memory, plan.transfer, plan.host)
    if cost.host_peak != plan.host_peak:
        raise ScheduleError(
            f"the plan promises a peak of {plan.host_peak} bytes on the host, the machine counts {cost.host_peak}"
        )
    if cost.peak != plan.peak:
        raise ScheduleError(f"the plan promises a peak of {plan.peak} bytes, the machine counts {cost.peak}")
    if not math.isclose(cost.overhead, plan.overhead, rel_tol=1e-9, abs_tol=1e-9):
        raise ScheduleError(
            f"the plan promises an overhead of {plan.overhead:.6%}, the machine counts {cost.overhead:.6%}"
        )
    if plan.bound > cost.overhead + 1e-9:
        raise ScheduleError(
            f"the plan says that any plan must add {plan.bound:.6%}, and adds {cost.overhead:.6%} itself"
        )
    return cost


def simulate(
    graph: Graph,
    steps: Iterable[Step],
    memory: int | None = None,
    transfer: float | None = None,
    host: int | None = None,
) -> GraphCost:
    """Run bare steps on the abstract machine, within ``memory`` here and ``host`` there."""
    machine = Machine(graph, memory, transfer, host)
    for step in steps:
        machine.do(step)
    return machine.finish()


class Machine:
    """What is here, what is on the host, what has run, and what was counted."""

    def __init__(
        self, graph: Graph, memory: int | None = None, transfer: float | None = None, host: int | None = None
    ) -> None:
        self.graph, self.memory, self.transfer, self.room = graph, memory, transfer, host
        self.size = {name: storage.bytes for name, storage in graph.storage.items()}
        self.here = {storage.name for storage in graph.inputs}
        self.host: set[str] = set()
        self.ran: dict[str, int] = {}
        self.turned = False
        self.live = self.peak = self.parked = self.host_peak = 0
        self.times: list[float] = []
        self.curve: list[int] = []
        self.index = -1
        self.step: Step | None = None

    def do(self, step: Step) -> None:
        """Take one step, or raise."""
        self.index += 1
        self.step = step
        taken = self.live
        match step:
            case Compute(node):
                taken = self._run(node)
            case Free(storage):
                self._give_back(storage)
            case Offload(storage):
                self._give_back(storage)
                self.host.add(storage)
                self.parked += self.size[storage]
                self.host_peak = max(self.host_peak, self.parked)
                self._move(storage)
            case Fetch(storage):
                if storage not in self.host:
                    self._refuse(f"{storage!r} is not on the host")
                self.host.remove(storage)
                self.parked -= self.size[storage]
                self.here.add(storage)
                self.live += self.size[storage]
                taken = self.live
                self._move(storage)
            case _:
                self._refuse("that is not a step")
        self.curve.append(taken)
        self.peak = max(self.peak, taken)
        if self.memory is not None and taken > self.memory:
            self._refuse(f"{taken} bytes ({format_bytes(taken)}) would be taken of {self.memory}")
        if self.room is not None and self.parked > self.room:
            self._refuse(f"{self.parked} bytes ({format_bytes(self.parked)}) would be on the host, of {self.room}")

    def finish(self) -> GraphCost:
        """The counts, once everything has run and only the outputs are left."""
        self.step = None
        missing = [node.name for node in self.graph.nodes if node.name not in self.ran]
        if missing:
            self._refuse(f"{len(missing)} nodes never ran, {missing[0]!r} first")
        absent = [name for name in self.graph.outputs if name not in self.here]
        if absent:
            self._refuse(f"output {absent[0]!r} is not there")
        left = [*sorted(self.here - self.graph.kept), *sorted(self.host)]
        if left:
            self._refuse(f"{len(left)} storages are left, {left[0]!r} first")
        time, once = math.fsum(self.times), self.graph.time
        overhead = (time - once) / once if once else 0.0
        return GraphCost(self.peak, time, overhead, sum(self.ran.values()), tuple(self.curve), self.host_peak)

    def _run(self, name: str) -> int:
        node = self.graph.node.get(name)
        if node is None:
            self._refuse("there is no such node")
        count = self.ran.get(name, 0)
        if count and (node.backward or not node.replayable):
            self._refuse(
                "that node has run before, and " + ("is of the backward pass" if node.backward else "can't be replayed")
            )
        for read in node.reads:
            if read not in self.here:
                self._refuse(f"it reads {read!r}, which is not there")
        for other in node.after:
            if other not in self.ran:
                self._refuse(f"it is to run after {other!r}, which has not run")
        if node.backward and not self.turned:
            self._turn()
        self.ran[name] = count + 1
        self.times.append(node.time)
        taken = self.live + node.bytes + node.workspace
        for storage in node.makes:
            if storage.name not in self.here and storage.name not in self.host:
                self.here.add(storage.name)
                self.live += storage.bytes
        return taken

    def _turn(self) -> None:
        self.turned = True
        for output in self.graph.outputs:
            maker = self.graph.maker.get(output)
            if maker is not None and not maker.backward and output not in self.here:
                self._refuse(f"the backward pass begins, and output {output!r} of the forward pass is not there")

    def _give_back(self, storage: str) -> None:
        if storage in self.graph.kept:
            self._refuse(f"{storage!r} is " + ("an output" if storage in self.graph.outputs else "the caller's"))
        if storage not in self.here:
            self._refuse(f"{storage!r} is not there")
        self.here.remove(storage)
        self.live -= self.size[storage]

    def _move(self, storage: str) -> None:
        if self.transfer:
            self.times.append(self.size[storage] / self.transfer)

    def _refuse(self, rule: str) -> NoReturn:
        where = "at the end" if self.step is None else f"step {self.index}, {self.step!r}"
        raise ScheduleError(f"{where}: {rule}", None if self.step is None else self.index)
