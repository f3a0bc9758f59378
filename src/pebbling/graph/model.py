"""A graph of operations with real costs: what each reads, makes, and takes in time and bytes.

Memory is counted by **storage**, not by tensor: views and aliases of one storage share its bytes, and
an operation reads and makes storages. The given order of the nodes is one that runs. Nodes of the
forward pass may be run any number of times, unless they have an effect; those of the backward pass
run once each. See ``check`` for the machine that a plan is held against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes under one name; ``held`` ones are the caller's, there all along and outside the budget."""

    name: str
    bytes: int
    held: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One operation, or several that always run together.

    ``reads`` names storages, ``makes`` says which it allocates: all of them at every run, so that a
    replay of an operation with several results makes them all again. ``workspace`` is taken during
    the run only. ``after`` names nodes that must have run before this one for their effects.
    ``members`` names the framework's own operations that this one stands for, in order.
    """

    name: str
    reads: tuple[str, ...] = ()
    makes: tuple[Storage, ...] = ()
    time: float = 0.0
    workspace: int = 0
    backward: bool = False
    replayable: bool = True
    random: bool = False
    """A replay must draw the numbers of the first run again: whoever runs the plan keeps the seed."""
    after: tuple[str, ...] = ()
    op: str = ""
    module: str = ""
    members: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all that one run makes."""
        return sum(storage.bytes for storage in self.makes)


@dataclass(frozen=True)
class Graph:
    """Operations in an order that runs, the caller's storages, and the storages that are wanted at the end.

    >>> graph = Graph(
    ...     [
    ...         Node("square", ("x",), (Storage("y", 8),), time=1.0),
    ...         Node("double", ("y", "x"), (Storage("dx", 8),), time=1.0, backward=True),
    ...     ],
    ...     inputs=[Storage("x", 8, held=True)],
    ...     outputs=["dx"],
    ... )
    >>> graph.maker["y"].name
    'square'
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Storage, ...] = ()
    outputs: tuple[str, ...] = ()
    name: str = ""

    def __init__(
        self, nodes: Iterable[Node], inputs: Iterable[Storage] = (), outputs: Iterable[str] = (), name: str = ""
    ) -> None:
        object.__setattr__(self, "nodes", tuple(nodes))
        object.__setattr__(self, "inputs", tuple(inputs))
        object.__setattr__(self, "outputs", tuple(dict.fromkeys(outputs)))
        object.__setattr__(self, "name", name)
        _validate(self)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def node(self) -> Mapping[str, Node]:
        """Each node by its name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def storage(self) -> Mapping[str, Storage]:
        """Each storage by its name, the caller's included."""
        made = (storage for node in self.nodes for storage in node.makes)
        return {storage.name: storage for storage in (*self.inputs, *made)}

    @cached_property
    def maker(self) -> Mapping[str, Node]:
        """The node that makes each storage; the caller's have none."""
        return {storage.name: node for node in self.nodes for storage in node.makes}

    @cached_property
    def time(self) -> float:
        """Time of one run of every node: what no plan can go below."""
        return math.fsum(node.time for node in self.nodes)

    @cached_property
    def kept(self) -> frozenset[str]:
        """Storages that are never freed once they are there: the outputs and the caller's."""
        return frozenset(self.outputs) | {storage.name for storage in self.inputs}

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """What the backward pass reads from the forward pass, the caller's storages left out."""
        forward = {s.name for node in self.nodes if not node.backward for s in node.makes}
        return tuple(dict.fromkeys(name for n in self.nodes if n.backward for name in n.reads if name in forward))


def _validate(graph: Graph) -> None:
    """Raise a ``ValueError`` that names the node, or the storage, at fault."""
    makers: dict[str, Node | None] = {}
    for storage in graph.inputs:
        _amount(storage.bytes, f"input {storage.name!r}", "bytes")
        if storage.name in makers:
            raise ValueError(f"input {storage.name!r} is there twice: give each storage a name of its own")
        if not storage.held:
            raise ValueError(f"input {storage.name!r} is not held: inputs are the caller's, Storage(…, held=True)")
        makers[storage.name] = None
    names: set[str] = set()
    for node in graph.nodes:
        where = f"node {node.name!r}"
        if node.name in names:
            raise ValueError(f"{where} is there twice: give each node a name of its own")
        names.add(node.name)
        _amount(node.time, where, "time")
        _amount(node.workspace, where, "workspace")
        for storage in node.makes:
            _amount(storage.bytes, where, f"bytes of {storage.name!r}")
            if storage.held:
                raise ValueError(f"{where} makes {storage.name!r}, which is marked as held: only inputs are held")
            if storage.name in makers:
                other = makers[storage.name]
                by = "is an input" if other is None else f"is made by node {other.name!r} too"
                raise ValueError(f"{where} makes {storage.name!r}, which {by}: a storage has one maker")
            makers[storage.name] = node
    _validate_order(graph, makers, names)
    for output in graph.outputs:
        if output not in makers:
            raise ValueError(f"output {output!r} is made by no node and is no input")


def _validate_order(graph: Graph, makers: Mapping[str, Node | None], names: set[str]) -> None:
    done: set[str] = set()
    first = [n for n in (makers.get(output) for output in graph.outputs) if n is not None and not n.backward]
    for node in graph.nodes:
        late = next((n for n in first if node.backward and n.name not in done), None)
        if late is not None:
            raise ValueError(
                f"node {node.name!r} of the backward pass comes before node {late.name!r} of the forward pass, which "
                "makes an output: give the nodes in an order that runs"
            )
        for name in node.reads:
            if name not in makers:
                raise ValueError(f"node {node.name!r} reads {name!r}, which no node makes and which is no input")
            maker = makers[name]
            if maker is None:
                continue
            if maker.name not in done:
                raise ValueError(_disorder(graph, makers, node, f"reads {name!r} of node {maker.name!r}"))
            if maker.backward and not node.backward:
                raise ValueError(
                    f"node {node.name!r} of the forward pass reads {name!r}, which node {maker.name!r} of the "
                    "backward pass makes: mark it as backward"
                )
        for name in node.after:
            if name not in names:
                raise ValueError(f"node {node.name!r} is to run after {name!r}, which is no node")
            if name not in done:
                raise ValueError(_disorder(graph, makers, node, f"is to run after node {name!r}"))
        done.add(node.name)


def _disorder(graph: Graph, makers: Mapping[str, Node | None], node: Node, what: str) -> str:
    """Why a node comes too early: a cycle through it, or only the order in which the nodes were given."""
    by_name = {each.name: each for each in graph.nodes}

    def before(each: Node) -> list[Node]:
        made = [makers.get(name) for name in each.reads]
        return [maker for maker in made if maker is not None] + [by_name[n] for n in each.after if n in by_name]

    came: dict[str, Node] = {}
    stack = before(node)
    for each in stack:
        came.setdefault(each.name, node)
    while stack:
        each = stack.pop()
        if each.name == node.name:
            path, at = [node.name], came[node.name]
            while at.name != node.name:
                path.append(at.name)
                at = came[at.name]
            return f"nodes {' → '.join([node.name, *path[1:], node.name])} form a cycle: each needs the next"
        for other in before(each):
            if other.name not in came:
                came[other.name] = each
                stack.append(other)
    return f"node {node.name!r} {what}, which comes later: give the nodes in an order that runs"


def _amount(value: float, where: str, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{where}: {what} is {value!r}; expected a finite number, 0 or more")
    if what != "time" and value != int(value):
        raise ValueError(f"{where}: {what} is {value!r}; expected a whole number")
