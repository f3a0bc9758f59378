"""A graph as arrays of numbers, for the solvers: nodes and storages by position, held storages left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .model import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Arrays(NamedTuple):
    """What the compiled loops take of a graph; see ``Indexed``."""

    reads: Ints
    read_at: Ints
    makes: Ints
    make_at: Ints
    time: Floats
    workspace: Ints
    size: Ints
    maker: Ints
    fixed: Flags
    movable: Flags
    trip: Floats
    host: int


@dataclass(frozen=True, eq=False)
class Indexed:
    """Lists of lists are flat arrays with pointers: node ``n`` reads ``reads[read_at[n] : read_at[n + 1]]``.

    ``movable`` storages may be dropped and made again; ``fixed`` ones are outputs, which stay from
    their first making to the end. ``trip`` is the time to copy each to the host and back, infinite for
    those that may not go there, and ``host`` the bytes that the host has for them. An **event** is one
    use of a storage in the main line, by its maker or by a reader: the positions in ``reads``, then those
    in ``makes``.
    """

    graph: Graph
    names: tuple[str, ...]
    reads: Ints
    read_at: Ints
    makes: Ints
    make_at: Ints
    time: Floats
    workspace: Ints
    size: Ints
    maker: Ints
    fixed: Flags
    movable: Flags
    backward: Flags
    early: Flags
    """Nodes that must have run when the backward pass begins: what the outputs of the forward pass are made from."""
    after: tuple[Ints, ...] = field(repr=False)
    trip: Floats = field(repr=False)
    host: int = 0

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self.reads) + len(self.makes)

    def reads_of(self, node: int) -> Ints:
        """What a node reads."""
        return self.reads[self.read_at[node] : self.read_at[node + 1]]

    def makes_of(self, node: int) -> Ints:
        """What a node makes."""
        return self.makes[self.make_at[node] : self.make_at[node + 1]]

    @cached_property
    def readers(self) -> list[list[int]]:
        """Nodes that read each storage, in the given order."""
        found: list[list[int]] = [[] for _ in self.names]
        for node in range(len(self.time)):
            for storage in self.reads_of(node):
                found[storage].append(node)
        return found

    @cached_property
    def before(self) -> list[list[int]]:
        """Nodes that each node must follow directly, the turn from forward to backward included."""
        turn = [n for n, early in enumerate(self.early) if early and self.fixed[self.makes_of(n)].any()]
        found = []
        for node in range(len(self.time)):
            direct = {int(self.maker[s]) for s in self.reads_of(node)} | {int(n) for n in self.after[node]}
            if self.backward[node]:
                direct.update(turn)
            found.append(sorted(direct))
        return found

    @cached_property
    def arrays(self) -> Arrays:
        """What the compiled loops take."""
        return Arrays(
            self.reads, self.read_at, self.makes, self.make_at, self.time, self.workspace,
            self.size, self.maker, self.fixed, self.movable, self.trip, self.host,
        )  # fmt: skip


def index(graph: Graph) -> Indexed:
    """The arrays of a graph."""
    names = tuple(storage.name for node in graph.nodes for storage in node.makes)
    at = {name: i for i, name in enumerate(names)}
    number = {node.name: i for i, node in enumerate(graph.nodes)}
    reads = [sorted({at[name] for name in node.reads if name in at}) for node in graph.nodes]
    makes = [[at[storage.name] for storage in node.makes] for node in graph.nodes]
    maker = np.array([i for i, made in enumerate(makes) for _ in made], np.int64)
    fixed = np.array([name in graph.kept for name in names], np.bool_)
    backward = np.array([node.backward for node in graph.nodes], np.bool_)
    again = np.array([node.replayable and not node.backward for node in graph.nodes], np.bool_)
    after = tuple(np.array([number[name] for name in node.after], np.int64) for node in graph.nodes)
    return Indexed(
        graph,
        names,
        *_flat(reads),
        *_flat(makes),
        np.array([node.time for node in graph.nodes], np.float64),
        np.array([node.workspace for node in graph.nodes], np.int64),
        np.array([graph.storage[name].bytes for name in names], np.int64),
        maker,
        fixed,
        again[maker] & ~fixed if len(names) else np.zeros(0, np.bool_),
        backward,
        _early(reads, makes, fixed, backward, after),
        after,
        np.full(len(names), np.inf),
    )


def _flat(lists: list[list[int]]) -> tuple[Ints, Ints]:
    flat = np.array([each for some in lists for each in some], np.int64)
    return flat, np.cumsum([0, *(len(some) for some in lists)], dtype=np.int64)


def _early(
    reads: list[list[int]], makes: list[list[int]], fixed: Flags, backward: Flags, after: tuple[Ints, ...]
) -> Flags:
    maker = {storage: node for node, made in enumerate(makes) for storage in made}
    early = np.zeros(len(reads), np.bool_)
    for node in reversed(range(len(reads))):
        if not backward[node] and any(fixed[storage] for storage in makes[node]):
            early[node] = True
        if early[node]:
            early[[maker[storage] for storage in reads[node]]] = True
            early[after[node]] = True
    return early
