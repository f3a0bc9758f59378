"""A plan as the tables that later steps run by: what to bind, to hold and to drop, and when to make and free what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....graph import Compute, Free, GraphPlan
from .graph import Planned, number_of
from .operators import Written, operator
from .recorded import Recorded, RecordedOp


class Spec:
    """What a later step does about one operation, beside running it."""

    __slots__ = ("bind", "facts", "function", "holds", "made", "random", "scratch", "steals", "told", "written")

    def __init__(self, function: Any, seen: RecordedOp | None) -> None:
        self.function = function
        self.facts = operator(function)
        self.written: tuple[Written, ...] = self.facts.written
        self.bind = False
        """Whether it may have to run again, so that its arguments are wanted."""
        self.holds: frozenset[int] = frozenset()
        """Values of it that are held, for others to be made from."""
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
    """A value to be made again, or to be given back."""

    number: int
    make: bool


def table_of(recorded: Recorded, planned: Planned, plan: GraphPlan) -> Table:
    """The tables of a plan."""
    table = Table(plan, recorded.functions)
    kept = {n for name in (*plan.saved, *plan.graph.outputs) if (n := number_of(name)) is not None}
    _actions(table, planned, plan, recorded)
    droppable = _droppable(recorded, planned, plan)
    table.turn_of = planned.turn_of
    for position, number in enumerate(recorded.packs):
        # What is kept, and then let go and made again for a later node, must not be held by autograd meanwhile.
        stays = number in kept and number not in table.remade
        drop = number in droppable and not stays and position in planned.turn_of
        table.drops.append(number if drop and number is not None else -1)
        if drop:
            table.tickets[planned.turn_of[position]] += 1
    _specs(table, recorded, planned, kept)
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
    for step in plan.backward:
        match step:
            case Compute(node) if node.startswith("b"):
                at = int(node[1:])
                table.before[at], waiting, fresh = waiting, [], True
            case Compute(node) if node in planned.members:
                for member in planned.members[node]:
                    values = recorded.seen[member].values
                    if values:
                        waiting.append(Action(values[0], make=True))
                        table.remade.update(values)
                fresh = False
            case Free(storage) if (number := number_of(storage)) is not None:
                (table.after[at] if fresh and at >= 0 else waiting).append(Action(number, make=False))


def _specs(table: Table, recorded: Recorded, planned: Planned, kept: set[int]) -> None:
    """Bind what dropped values come from, and hold what that reads of what is kept."""
    makers = {value: number for number, seen in recorded.seen.items() for value in seen.values}
    groups = {member: members for members in planned.members.values() for member in members}
    again = {action.number for each in (*table.before, *table.after) for action in each if action.make}
    bound: set[int] = set()
    held: set[int] = kept & table.remade
    stack = [number for number in table.drops if number >= 0] + sorted(again)
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
                if value in kept or small or not recorded.seen[makers[value]].again:
                    held.add(value)
                else:
                    stack.append(value)
    for position, function in enumerate(recorded.functions):
        seen = recorded.seen.get(position)
        holds = frozenset(value for value in seen.values if value in held) if seen is not None else frozenset()
        if position not in bound and not holds and not operator(function).written and hasattr(function, "_op"):
            table.specs.append(function)
            continue
        spec = Spec(function, seen)
        spec.bind, spec.holds = position in bound, holds
        if seen is not None and (spec.bind or holds):
            spec.made = seen.made
            spec.steals = tuple(planned.steals.get(position, ()))
        table.specs.append(spec)
    table.specs.append(None)
