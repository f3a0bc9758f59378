"""What the page of a plan shows, as plain numbers: curves, what makes the peak, the trade-off, the modules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ...errors import BudgetError
from ...graph import Compute, Free, Graph, GraphPlan, check, smallest, solve


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes taken over time; ``turn`` is when the backward pass begins."""

    times: tuple[float, ...]
    bytes: tuple[int, ...]
    turn: float

    @property
    def peak(self) -> int:
        """The most."""
        return max(self.bytes, default=0)


@dataclass(frozen=True)
class Alive:
    """A storage that is there at the peak."""

    name: str
    op: str
    module: str
    bytes: int


@dataclass(frozen=True)
class Point:
    """Overhead of the plan found for a budget, and what any plan must add."""

    memory: int
    overhead: float
    bound: float


@dataclass(frozen=True)
class Share:
    """What one module makes, keeps for the backward pass, and runs again."""

    module: str
    made: int
    kept: int
    time: float
    replays: int
    replayed: float


def curve(plan: GraphPlan) -> MemoryCurve:
    """Bytes over time of a plan."""
    taken = check(plan).curve
    times, levels, now, turn = [], [], 0.0, 0.0
    for position, (step, level) in enumerate(zip(plan.steps, taken)):
        if position == plan.split:
            turn = now
        if isinstance(step, Compute):
            times.append(now)
            levels.append(level)
            now += plan.graph.node[step.node].time
    times.append(now)
    levels.append(levels[-1] if levels else 0)
    return MemoryCurve(tuple(times), tuple(levels), turn)


def at_peak(plan: GraphPlan) -> list[Alive]:
    """What is there when the most is taken, the largest first."""
    graph, cost = plan.graph, check(plan)
    there: dict[str, None] = {}
    for step in plan.steps[: cost.worst]:
        if isinstance(step, Compute):
            there.update((storage.name, None) for storage in graph.node[step.node].makes)
        elif isinstance(step, Free):
            there.pop(step.storage, None)
    found = [_alive(graph, name) for name in there]
    worst = plan.steps[cost.worst]
    if isinstance(worst, Compute):
        node = graph.node[worst.node]
        found += [_alive(graph, storage.name) for storage in node.makes if storage.name not in there]
        if node.workspace:
            found.append(Alive(f"workspace of {node.name}", node.op, node.module, node.workspace))
    return sorted((each for each in found if each.bytes), key=lambda each: -each.bytes)


def trade_off(plan: GraphPlan, seconds: float, points: int = 8) -> list[Point]:
    """Overhead and bound from the smallest budget to the one that needs no replay, this plan's included."""
    everything = solve(plan.graph, None).peak
    least = smallest(plan.graph)
    found = [Point(everything, 0.0, 0.0)]
    if plan.memory is not None and plan.overhead > 0:
        found.append(Point(plan.peak, plan.overhead, plan.bound))
    for part in range(points if everything > least else 0):
        memory = least + (everything - least) * part // points
        try:
            other = solve(plan.graph, memory, time_limit=seconds / points)
        except BudgetError:
            continue
        found.append(Point(memory, other.overhead, other.bound))
    found.sort(key=lambda point: point.memory)
    # A plan for less memory is a plan for more, and a bound for more memory is one for less.
    best: list[Point] = []
    for point in found:
        overhead = min(point.overhead, best[-1].overhead) if best else point.overhead
        best.append(Point(point.memory, overhead, point.bound))
    for i in reversed(range(len(best) - 1)):
        best[i] = Point(best[i].memory, best[i].overhead, max(best[i].bound, best[i + 1].bound))
    return best


def modules(plan: GraphPlan) -> list[Share]:
    """What each module of the forward pass makes, keeps and runs again, in the order of the model."""
    saved, extra = set(plan.saved), plan.replayed
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0, 0.0])
    for node in plan.graph.nodes:
        if node.backward:
            continue
        row = totals[node.module]
        row[0] += node.bytes
        row[1] += sum(storage.bytes for storage in node.makes if storage.name in saved)
        row[2] += node.time
        row[3] += extra.get(node.name, 0)
        row[4] += extra.get(node.name, 0) * node.time
    return [Share(name, int(r[0]), int(r[1]), r[2], int(r[3]), r[4]) for name, r in totals.items()]


def _alive(graph: Graph, name: str) -> Alive:
    node = graph.maker.get(name)
    return Alive(name, node.op if node else "", node.module if node else "", graph.storage[name].bytes)
