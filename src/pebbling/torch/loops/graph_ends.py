"""Which tensors a taped step has reached besides those it was given, read off its autograd graph.

Every edge of the graph leads to a node of the step itself, to a leaf (``AccumulateGrad``), or to a node
that was there before the step began, which made a tensor that the step found somewhere. Nodes are
numbered in the order they are made, so the three are told apart exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.autograd.graph import GradientEdge

Edge: TypeAlias = tuple[Any, int]


class GraphEnds(NamedTuple):
    """What lies at the ends of a graph."""

    leaves: list[torch.Tensor]
    casts: dict[Edge, torch.Tensor]
    """Copies of leaves in another dtype that autocast made, each with its leaf."""
    hidden: list[Edge]
    """Tensors that are neither leaves nor known: all that is left of them is the node that made them."""
    known: set[Edge]
    """Those of the known edges that were met."""


def now() -> int:
    """The number of the next node."""
    node: Any = torch.empty((), requires_grad=True).view(()).grad_fn
    return node._sequence_nr()


def place_of(edge: GradientEdge) -> Edge:
    """What tells one edge from another."""
    return edge.node, edge.output_nr


def graph_ends(outputs: Iterable[GradientEdge], since: int, known: Collection[Edge], casts: bool) -> GraphEnds:
    """Walk from the outputs of a step whose first node had number ``since`` or more, as far as ``known`` edges.

    ``casts`` says whether autocast may have copied leaves.
    """
    found = GraphEnds([], {}, [], set())
    seen: set[Any] = set()
    stack = [place_of(output) for output in outputs]
    ends: set[Edge] = set()
    while stack:
        edge = stack.pop()
        node = edge[0]
        if edge in known:
            found.known.add(edge)
            continue
        if edge in ends:
            continue
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            ends.add(edge)
            found.leaves.append(leaf)
            continue
        cast = _cast_leaf(node) if casts else None
        if cast is not None:
            ends.add(edge)
            found.casts[edge] = cast
            continue
        if node._sequence_nr() < since:
            ends.add(edge)
            found.hidden.append(edge)
            continue
        if node not in seen:
            seen.add(node)
            stack += [(after, number) for after, number in node.next_functions if after is not None]
    return found


def _cast_leaf(node: Any) -> torch.Tensor | None:
    """The leaf that a node converts to another dtype, if that is what it does."""
    if node.name() != "ToCopyBackward0":
        return None
    after = node.next_functions[0][0]
    return getattr(after, "variable", None)
