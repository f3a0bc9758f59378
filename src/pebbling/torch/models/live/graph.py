"""From a recorded step to the graph that is planned.

Operations come in the order in which they ran, backward nodes in the order in which they ran. Values are storages;
one that the program itself still holds after its last use is read by a node of no time at the moment when it is let
go. Operations that write in place are one node with the one that made what they write, where nobody looks in between.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ....graph import Graph, Node, Storage
from ..wishes import Wishes, named
from .away import SMALL
from .costs import Price
from .recorded import UNSEEN, BackwardTurn, Recorded


@dataclass
class Planned:
    """The graph of a step, and what its names stand for."""

    graph: Graph
    members: dict[str, tuple[int, ...]]
    """Operations of each forward node."""
    steals: dict[int, set[int]]
    """Values that an operation may write over, since nobody else reads them: by operation."""
    turn_of: dict[int, int]
    """The backward node that unpacks first what was saved at a position."""
    gone: set[int] = field(default_factory=set)
    """Values that are there within a node only."""
    modules: dict[str, set[str]] = field(default_factory=dict)
    """Modules in which the operations of each forward node run."""

    def made_in(self, wishes: Wishes) -> list[str]:
        """Nodes with an operation in a module that is wished for."""
        return [name for name, modules in self.modules.items() if any(named(each, wishes) for each in modules)]

    @cached_property
    def graph_values(self) -> frozenset[int]:
        """Values that are storages of the graph; smaller ones are always kept."""
        return frozenset(n for name in self.graph.storage if (n := number_of(name)) is not None)


def number_of(name: str) -> int | None:
    """The value that a storage of the graph is; None for those of the backward pass."""
    return int(name[1:]) if name.startswith("v") else None


def graph_of(recorded: Recorded, prices: dict[Any, Price], grain: int = 1, name: str = "") -> Planned:
    """The graph of a recorded step."""
    return _Assembly(recorded, prices, grain, name).build()


class _Assembly:
    def __init__(self, recorded: Recorded, prices: dict[Any, Price], grain: int, name: str) -> None:
        self.recorded, self.prices, self.grain, self.name = recorded, prices, grain, name
        self.big = {number for number, bytes in recorded.sizes.items() if bytes > SMALL}
        self.packed = {number for number in recorded.packs if number is not None}
        self.readers: dict[int, list[int]] = defaultdict(list)
        for number, seen in recorded.seen.items():
            for value in seen.reads:
                self.readers[value].append(number)
        self.root: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        self.gone: set[int] = set()
        self.steals: dict[int, set[int]] = defaultdict(set)
        self.nodes: list[Node] = []
        self.outputs: list[str] = []
        self.last = ""

    def build(self) -> Planned:
        self._join()
        self._forward()
        turn_of = self._backward()
        outputs = [*(f"v{n}" for n in sorted(self.recorded.outputs) if n in self.known), *self.outputs]
        members = {f"f{root}": tuple(each) for root, each in self.members.items()}
        graph = Graph(self.nodes, [], outputs, self.name)
        present = {node.name for node in self.nodes}
        seen = self.recorded.seen
        modules = {name: {seen[each].module for each in group} for name, group in members.items() if name in present}
        return Planned(graph, members, self.steals, turn_of, self.gone, modules)

    def _join(self) -> None:
        """Join operations that write in place with the maker, where nobody reads what was there before."""
        seen = self.recorded.seen
        makers = {value: number for number, each in seen.items() for value in each.values}
        for number in sorted(seen):
            self.root[number] = number
            self.members[number] = [number]
            for old, _ in seen[number].written:
                maker = makers.get(old) if old is not None else None
                if old is None or maker is None or old in self.packed or self.readers[old] != [number]:
                    continue
                root = self.root[maker]
                group = self.members[root]
                # What the maker made beside it may have readers before this operation: they need the maker alone.
                beside = {value for each in group for value in seen[each].values} - {old} - self.gone
                if any(reader < number for value in beside for reader in self.readers[value]):
                    continue
                if root != number:
                    for each in group:
                        self.root[each] = number
                    self.members[number] = sorted({*group, *self.members[number]})
                    del self.members[root]
                self.gone.add(old)
                self.steals[number].add(old)

    def _forward(self) -> None:
        recorded = self.recorded
        self.known: set[int] = set()
        ends: dict[int, list[int]] = defaultdict(list)
        for value, at in recorded.died.items():
            last = max((self.root.get(reader, reader) for reader in self.readers.get(value, ())), default=-1)
            if value in self.big and value not in self.gone and at > last:
                ends[at].append(value)
        foreign: dict[int, list[int]] = defaultdict(list)
        for value, at in recorded.foreign.items():
            if value in self.big:
                foreign[at].append(value)
        for number in range(len(recorded.functions) + 1):
            if number in foreign:
                self._add(Node(f"x{number}", (), self._storages(foreign[number]), replayable=False, op=UNSEEN))
                self.known.update(foreign[number])
            if number in self.members:
                self._operation(number)
            held = [value for value in ends.get(number, ()) if value in self.known]
            if held:
                reads = tuple(f"v{value}" for value in held)
                self._add(Node(f"h{number}", reads, (), replayable=False, op="held by the program"))

    def _operation(self, number: int) -> None:
        group = [self.recorded.seen[each] for each in self.members[number]]
        made = [v for each in group for v in each.values if v in self.big and v not in self.gone]
        reads = [v for each in group for v in each.reads if v in self.known and v not in made]
        if not made and not any(self._price(each.signature, each.seconds).time > 0 for each in group):
            return
        unfilled = any(each.unfilled and value not in self.gone for each in group for value in each.values)
        prices = [self._price(each.signature, each.seconds) for each in group]
        self._add(
            Node(
                f"f{number}",
                tuple(f"v{value}" for value in dict.fromkeys(reads)),
                self._storages(made),
                sum(price.time for price in prices),
                max(price.workspace for price in prices),
                replayable=all(each.again for each in group) and not unfilled,
                random=any(each.random for each in group),
                op=group[-1].name,
                module=group[-1].module,
            )
        )
        self.known.update(made)

    def _backward(self) -> dict[int, int]:
        """Nodes that unpack nothing join the one before; what they make lives as long as it was seen to live."""
        turns, joined = self.recorded.turns, list[tuple[BackwardTurn, list[int]]]()
        index: dict[int, int] = {}
        for position, turn in enumerate(turns):
            if not joined or any(value in self.known for _, value in turn.reads):
                joined.append((turn, []))
            joined[-1][1].append(position)
            index[position] = len(joined) - 1
        lasting: dict[int, int] = defaultdict(int)
        until: dict[tuple[int, int], int] = defaultdict(int)
        for bytes, first, last in self.recorded.gradients:
            begin = index.get(min(first, len(turns) - 1), 0)
            if last is None:
                lasting[begin] += self._whole(bytes)
            elif (end := index.get(min(last, len(turns) - 1), begin)) > begin:
                until[begin, end] += self._whole(bytes)
        reads_of: dict[int, list[str]] = defaultdict(list)
        makes_of: dict[int, list[Storage]] = defaultdict(list)
        alive = [0] * (len(joined) + 1)
        for (begin, end), bytes in until.items():
            makes_of[begin].append(Storage(f"g{begin}_{end}", bytes))
            reads_of[end].append(f"g{begin}_{end}")
            for position in range(begin, end + 1):
                alive[position] += bytes
        for begin, bytes in lasting.items():
            makes_of[begin].append(Storage(f"g{begin}", bytes))
            self.outputs.append(f"g{begin}")
            for position in range(begin, len(joined)):
                alive[position] += bytes
        turn_of: dict[int, int] = {}
        for place, (_, members) in enumerate(joined):
            each = [turns[position] for position in members]
            reads = [value for turn in each for _, value in turn.reads if value in self.known]
            for turn in each:
                for position, _ in turn.reads:
                    turn_of.setdefault(position, place)
            prices = [self._turn(turn) for turn in each]
            most = max(turn.peak + price.workspace for turn, price in zip(each, prices, strict=True))
            self._add(
                Node(
                    f"b{place}",
                    (*(f"v{value}" for value in dict.fromkeys(reads)), *reads_of[place]),
                    tuple(makes_of[place]),
                    sum(price.time for price in prices),
                    self._whole(max(0, most - alive[place])),
                    backward=True,
                    op=each[0].name,
                )
            )
        return turn_of

    def _turn(self, turn: BackwardTurn) -> Price:
        """Time and workspace of a node: those of its operations, where they were measured on the device."""
        known = [self.prices[each] for each in turn.signatures if each in self.prices]
        workspace = max((price.workspace for price in known), default=0)
        timed = len(known) == len(turn.signatures) and all(price.timed for price in known)
        return Price(sum(price.time for price in known) if timed else turn.seconds, workspace)

    def _price(self, signature: Any, seconds: float) -> Price:
        price = self.prices.get(signature)
        return Price(seconds) if price is None else price if price.timed else Price(seconds, price.workspace)

    def _add(self, node: Node) -> None:
        """Every node runs after the one before it: the order is the program's."""
        self.nodes.append(replace(node, after=(self.last,) if self.last else ()))
        self.last = node.name

    def _storages(self, values: list[int]) -> tuple[Storage, ...]:
        return tuple(Storage(f"v{value}", self._whole(self.recorded.sizes[value])) for value in dict.fromkeys(values))

    def _whole(self, bytes: int) -> int:
        return -(-bytes // self.grain) * self.grain
