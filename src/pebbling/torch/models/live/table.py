"""A plan as the tables that later steps run by: what to bind, to hold and to drop, and when to make and free what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ....graph import Compute, Fetch, Free, GraphPlan, Offload, simulate
from .graph import Planned, number_of
from .host import places
from .operators import Written, operator
from .recorded import Recorded, RecordedOp


class Spec:
    """What a later step does about one operation, beside running it."""

    __slots__ = (
        "bind",
        "facts",
        "function",
        "holds",
        "leaves",
        "made",
        "random",
        "scratch",
        "steals",
        "told",
        "written",
    )

    def __init__(self, function: Any, seen: RecordedOp | None) -> None:
        self.function = function
        self.facts = operator(function)
        self.written: tuple[Written, ...] = self.facts.written
        self.bind = False
        """Whether it may have to run again, so that its arguments are wanted."""
        self.holds: frozenset[int] = frozenset()
        """Values of it that are held, for others to be made from."""
        self.leaves: tuple[int, ...] = ()
        """Values that are on the host alone from here on."""
        self.made: tuple[tuple[int, int], ...] = ()
        self.random = seen is not None and seen.random
        self.scratch = () if seen is None else seen.scratch
        self.steals: tuple[int, ...] = ()
        self.told = "" if seen is None else f"{seen.name} in {seen.module or 'the model'}"


@dataclass
class Table:
    """How to run the steps of one plan."""

    plan: GraphPlan
    functions: list[Any]
    specs: list[Any] = field(default_factory=list)
    """The function alone where nothing is to be done; None at the end."""
    drops: list[int] = field(default_factory=list)
    """The value that is dropped, for each that autograd saves; -1 for those that stay."""
    turn_of: dict[int, int] = field(default_factory=dict)
    tickets: list[int] = field(default_factory=list)
    """How many dropped values each backward node unpacks."""
    before: list[list[Action]] = field(default_factory=list)
    after: list[list[Action]] = field(default_factory=list)
    saved: int = 0
    """Bytes that stay between the passes where nothing is dropped."""
    remade: set[int] = field(default_factory=set)
    """Values that the backward pass makes again."""
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Values that go to the host, with their places there."""
    left: tuple[int, ...] = ()
    """Values that leave when the forward pass is over."""
    slabs: list[Any] = field(default_factory=list)
    """Memory of the host that no step uses."""
    everything: int = 0
    """The peak of a step in which nothing is dropped."""
    trusted: bool = False
    """Whether a step that ran by it was proven."""

    @property
    def drops_nothing(self) -> bool:
        """Whether the program may run as it is."""
        return not any(each >= 0 for each in self.drops)


@dataclass(frozen=True, slots=True)
class Action:
    """A value to be made again, given back, moved to the host or brought back."""

    number: int
    what: Literal["make", "free", "leave", "fetch"]

    @property
    def make(self) -> bool:
        """Whether its operation runs again."""
        return self.what == "make"


def table_of(recorded: Recorded, planned: Planned, plan: GraphPlan) -> Table:
    """The tables of a plan."""
    table = Table(plan, recorded.functions)
    kept = {n for name in (*plan.saved, *plan.graph.outputs) if (n := number_of(name)) is not None}
    away = {n for name in plan.offloaded if (n := number_of(name)) is not None}
    table.moved = places({number: recorded.sizes[number] for number in sorted(away)})
    kept -= away
    _actions(table, planned, plan, recorded)
    droppable = _droppable(recorded, planned, plan) | away
    table.turn_of = planned.turn_of
    for position, number in enumerate(recorded.packs):
        # What is kept, and then let go and made again for a later node, must not be held by autograd meanwhile.
        stays = number in kept and number not in table.remade
        drop = number in droppable and not stays and position in planned.turn_of
        table.drops.append(number if drop and number is not None else -1)
        if drop:
            table.tickets[planned.turn_of[position]] += 1
    _specs(table, recorded, planned, kept, plan)
    table.saved = sum(recorded.sizes.get(number, 0) for number in {n for n in recorded.packs if n is not None})
    return table


def _droppable(recorded: Recorded, planned: Planned, plan: GraphPlan) -> set[int]:
    """Values of nodes that may run again."""
    nodes = [node for node in plan.graph.nodes if not node.backward and node.replayable]
    return {n for node in nodes for storage in node.makes if (n := number_of(storage.name)) is not None}


def _actions(table: Table, planned: Planned, plan: GraphPlan, recorded: Recorded) -> None:
    """What the plan does before and after each backward node."""
    count = sum(1 for node in plan.graph.nodes if node.backward)
    table.before, table.after = [[] for _ in range(count)], [[] for _ in range(count)]
    table.tickets = [0] * count
    at, waiting, fresh = -1, list[Action](), False
    ahead = _ahead(plan)
    for index, step in enumerate(plan.backward, plan.split):
        match step:
            case Compute(node) if node.startswith("b"):
                at = int(node[1:])
                table.before[at], waiting, fresh = waiting, [], True
            case Compute(node) if node in planned.members:
                for member in planned.members[node]:
                    values = recorded.seen[member].values
                    if values:
                        waiting.append(Action(values[0], "make"))
                        table.remade.update(values)
                fresh = False
            case Free(storage) if (number := number_of(storage)) is not None:
                (table.after[at] if fresh and at >= 0 else waiting).append(Action(number, "free"))
            case Offload(storage) if (number := number_of(storage)) is not None:
                (table.after[at] if fresh and at >= 0 else waiting).append(Action(number, "leave"))
            case Fetch(storage) if (number := number_of(storage)) is not None:
                (table.before[turn] if (turn := ahead.get(index, -1)) >= 0 else waiting).append(Action(number, "fetch"))


def _ahead(plan: GraphPlan) -> dict[int, int]:
    """The node of the backward pass before which each copy back may begin, as far ahead as the budget has room."""
    if plan.memory is None or not plan.offloaded:
        return {}
    taken = list(simulate(plan.graph, plan.steps, None, plan.transfer, plan.host).curve)
    nodes = plan.graph.node
    turns = {i: int(s.node[1:]) for i, s in enumerate(plan.steps) if isinstance(s, Compute) and nodes[s.node].backward}
    found: dict[int, int] = {}
    for index, step in enumerate(plan.steps):
        if not isinstance(step, Fetch) or index < plan.split:
            continue
        bytes, first = plan.graph.storage[step.storage].bytes, index
        # As much again stays free: nodes let go of what they read a little later than the plan counts.
        while first > plan.split and taken[first - 1] + 2 * bytes <= plan.memory:
            if plan.steps[first - 1] == Offload(step.storage):
                break
            first -= 1
        turn = next(((at, number) for at, number in turns.items() if first <= at < index), None)
        if turn is not None:
            found[index] = turn[1]
            for place in range(turn[0], index):
                taken[place] += bytes
    return found


def _leaves(planned: Planned, plan: GraphPlan, end: int) -> dict[int, list[int]]:
    """Before which operations of the forward pass values leave for the host, for the last time."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for step in plan.forward:
        match step:
            case Compute(node) if node in planned.members:
                found.update(dict.fromkeys(waiting, planned.members[node][0]))
                waiting = []
            case Offload(storage) if (number := number_of(storage)) is not None:
                waiting.append(number)
    found.update(dict.fromkeys(waiting, end))
    turned: dict[int, list[int]] = {}
    for number, position in found.items():
        turned.setdefault(position, []).append(number)
    return turned


def _specs(table: Table, recorded: Recorded, planned: Planned, kept: set[int], plan: GraphPlan) -> None:
    """Bind what dropped values come from, and hold what that reads of what is kept."""
    makers = {value: number for number, seen in recorded.seen.items() for value in seen.values}
    groups = {member: members for members in planned.members.values() for member in members}
    again = {action.number for each in (*table.before, *table.after) for action in each if action.make}
    bound: set[int] = set()
    held: set[int] = (kept & table.remade) | set(table.moved)
    stack = [number for number in table.drops if number >= 0 and number not in table.moved] + sorted(again)
    while stack:
        number = stack.pop()
        for member in groups.get(makers[number], (makers[number],)):
            if member in bound:
                continue
            bound.add(member)
            for value in recorded.seen[member].reads:
                if value in planned.gone or value not in makers:
                    continue
                small = value not in planned.graph_values
                if value in kept or value in table.moved or small or not recorded.seen[makers[value]].again:
                    held.add(value)
                else:
                    stack.append(value)
    leaves = _leaves(planned, plan, len(recorded.functions))
    table.left = tuple(leaves.get(len(recorded.functions), ()))
    for position, function in enumerate(recorded.functions):
        seen = recorded.seen.get(position)
        holds = frozenset(value for value in seen.values if value in held) if seen is not None else frozenset()
        plain = not holds and position not in leaves and not operator(function).written
        if position not in bound and plain and hasattr(function, "_op"):
            table.specs.append(function)
            continue
        spec = Spec(function, seen)
        spec.bind, spec.holds = position in bound, holds
        spec.leaves = tuple(leaves.get(position, ()))
        if seen is not None and (spec.bind or holds):
            spec.made = seen.made
            spec.steals = tuple(planned.steals.get(position, ()))
        table.specs.append(spec)
    table.specs.append(None)
