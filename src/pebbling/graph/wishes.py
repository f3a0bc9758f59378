"""What the user wants of every plan: whose results stay, and which operations run once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from .model import Graph, Node


def wished(graph: Graph, keep: Iterable[str], never_replay: Iterable[str]) -> tuple[Graph, frozenset[str]]:
    """The graph in which what is named runs once, and the storages that stay here until their last use."""
    kept = _named(graph, keep, "keep")
    once = kept | _named(graph, never_replay, "never_replay")
    if not once:
        return graph, frozenset()
    nodes = [replace(node, replayable=False) if node.name in once else node for node in graph.nodes]
    stays = frozenset(storage.name for node in graph.nodes if node.name in kept for storage in node.makes)
    return Graph(nodes, graph.inputs, graph.outputs, graph.name), stays


def _named(graph: Graph, wishes: Iterable[str], argument: str) -> frozenset[str]:
    """Nodes of the forward pass that the wishes name; a ``ValueError`` for one that names none."""
    if isinstance(wishes, str):
        raise ValueError(f"{argument} is the text {wishes!r}: give a list of names, {argument}=[{wishes!r}]")
    forward = [node for node in graph.nodes if not node.backward]
    found: set[str] = set()
    for wish in wishes:
        if not isinstance(wish, str):
            raise ValueError(f"{argument} has {wish!r}: expected names of nodes or modules, as text")
        some = [node.name for node in forward if any(wish == each or fnmatchcase(each, wish) for each in _paths(node))]
        if not some:
            examples = ", ".join(dict.fromkeys(repr(node.module or node.name) for node in forward[:3]))
            raise ValueError(
                f"{argument} has {wish!r}, which matches no node of the forward pass and no module of one: there are "
                f"{len(forward)} nodes, of {examples or 'no module'} and others"
            )
        found.update(some)
    return frozenset(found)


def _paths(node: Node) -> Iterator[str]:
    """The name of a node, its module, and all modules around that."""
    yield node.name
    path = node.module
    while path:
        yield path
        path = path.rpartition(".")[0]
