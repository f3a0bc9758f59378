"""From an FX graph to the graph of storages: kernels, measured costs, joined operations, states of generators."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, replace

import torch
from torch import fx

from ...graph import Graph, Node, from_fx
from .costs import NEVER_MISSED, NodeCost, costs
from .in_place import JoinedNode, join_in_place
from .kernels import as_in_eager_mode
from .norms import NEW_STATISTICS
from .partition import is_tangent
from .random import add_states, is_random, own_generator, with_states
from .rows import InParts, in_parts

# Bytes of a gradient that is taken for that of a loss; 512 is the grain of a GPU's allocator.
_A_NUMBER = 512


@dataclass
class Captured:
    """A captured graph in both forms, and which of its nodes take the state of a generator."""

    module: fx.GraphModule
    forward_outputs: int
    graph: Graph
    states: dict[str, str]
    costs: dict[str, NodeCost]
    fingerprint: str
    device: str | None = None
    """The GPU that it runs on."""


def capture(
    module: fx.GraphModule,
    forward_outputs: int,
    mutated: list[str],
    most: int | None,
    name: str = "",
    parts: bool = False,
) -> Captured:
    """The graph of storages of an FX graph, with measured costs; with ``parts``, losses run some rows at a time."""
    module.graph.eliminate_dead_code()
    own = fingerprint(module)
    as_in_eager_mode(module, forward_outputs)
    backward = _after_tangents(module)
    known, joined = _rewritten(module, backward, None if most is None else max(most, NEVER_MISSED), parts)
    states = add_states(module, backward)
    nodes = list(module.graph.nodes)
    places = {str(getattr(node.meta.get("val"), "device", "")) for node in nodes}
    device = next((place for place in sorted(places) if place.startswith("cuda")), None)
    grain = 1 if device is None else 512
    graph = from_fx(
        module,
        forward_outputs,
        time={name: cost.time for name, cost in known.items()},
        workspace={name: cost.workspace for name, cost in known.items()},
        tangents=[node.name for node in nodes if is_tangent(node)],
        mutated=mutated,
        once=[node.name for node in nodes if node.op == "call_function" and own_generator(node)],
        held_tangents=False,
        rounding=grain,
        name=name,
    )
    drawing = {node.name for node in nodes if node.op == "call_function" and is_random(node)}
    graph = with_states(graph, states, drawing)
    again = {node.name: not _statistics_are_read(node) for node in nodes if hasattr(node.target, "again")}
    described = (
        _described(
            _sized(node, known.get(node.name), grain), joined.get(node.name), again.get(node.name, node.replayable)
        )
        for node in graph.nodes
    )
    graph = _writing_over(Graph(described, graph.inputs, graph.outputs, graph.name), joined)
    graph = _holding_tangents(graph, [node.name for node in nodes if is_tangent(node)])
    return Captured(module, forward_outputs, graph, states, known, own, device)


def _rewritten(
    module: fx.GraphModule, backward: set[str], most: int | None, parts: bool
) -> tuple[dict[str, NodeCost], dict[str, JoinedNode]]:
    """Join operations; the costs of all, and what those that are several stand for."""
    known = costs(module.graph.nodes, most)
    by_rows = in_parts(module, backward) if parts else {}
    for name, cost in costs([node for node in module.graph.nodes if node.name in by_rows], most).items():
        row = by_rows[name]
        whole = _sum([known[each] for each in row.names])
        workspace = max(cost.workspace, row.workspace)
        known[name] = replace(whole if cost.estimated else cost, workspace=workspace, bytes=())
    in_place = join_in_place(module, backward)
    known.update((name, _sum([known[each] for each in one.names])) for name, one in in_place.items())
    return known, {**by_rows, **in_place}


def _holding_tangents(graph: Graph, tangents: list[str]) -> Graph:
    """The gradient of a loss is held by whoever called ``backward``, until that returns.

    So is every gradient of an output in versions of torch that hand them to the backward pass in a tuple.
    """
    most = _A_NUMBER if hasattr(torch.autograd.function.BackwardCFunction, "apply_boxed") else math.inf
    held = [name for name in tangents if name in graph.storage and graph.storage[name].bytes <= most]
    return Graph(graph.nodes, graph.inputs, (*graph.outputs, *held), graph.name)


def _writing_over(graph: Graph, joined: dict[str, JoinedNode]) -> Graph:
    """The graph in which results that are written over others lie there."""
    for name, one in joined.items():
        if isinstance(one, InParts) and one.over is not None:
            # By now that may be one with the operation before it.
            over = next((other for other, each in joined.items() if one.over in each.names), one.over)
            graph = _written_over(graph, name, over)
    return graph


def _written_over(graph: Graph, result: str, over: str) -> Graph:
    """One result in place of another, which is made once and stays until both are read."""

    def change(node: Node) -> Node:
        if node.name == result:
            return replace(node, makes=tuple(replace(storage, bytes=0) for storage in node.makes))
        if node.name == over:
            return replace(node, replayable=False)
        return replace(node, reads=(*node.reads, over)) if result in node.reads and over not in node.reads else node

    return Graph(map(change, graph.nodes), graph.inputs, graph.outputs, graph.name)


def _statistics_are_read(node: fx.Node) -> bool:
    """Whether new statistics of a batch norm are read and then forgotten: a replay would not give them."""
    picks = [pick for pick in node.users if pick.args[1] in NEW_STATISTICS]
    return any(pick.users and all(user.op != "output" for user in pick.users) for pick in picks)


def _described(node: Node, joined: JoinedNode | None, again: bool) -> Node:
    """The node with names as the program has them, which may or may not run ``again``."""
    op = node.op if joined is None else " + ".join(joined.operators)
    return replace(node, op=op, module=_plain(node.module), replayable=again)


def _sized(node: Node, cost: NodeCost | None, grain: int) -> Node:
    """The node with storages as large as they were when it was measured, where that is more."""
    if cost is None or len(cost.bytes) != len(node.makes):
        return node
    sizes = (max(storage.bytes, -(-size // grain) * grain) for storage, size in zip(node.makes, cost.bytes))
    return replace(node, makes=tuple(replace(storage, bytes=size) for storage, size in zip(node.makes, sizes)))


def _sum(parts: list[NodeCost]) -> NodeCost:
    """Of operations that run as one, each over the result of the one before."""
    workspace = max(part.workspace for part in parts)
    return NodeCost(sum(part.time for part in parts), workspace, any(part.estimated for part in parts), parts[0].bytes)


def _plain(module: str) -> str:
    """A module's name as the program has it, without the tracer's own words."""
    return re.sub(r"^L\['\w+'\]\.?", "", module)


def _after_tangents(module: fx.GraphModule) -> set[str]:
    found: set[str] = set()
    for node in module.graph.nodes:
        if is_tangent(node) or any(argument.name in found for argument in node.all_input_nodes):
            found.add(node.name)
    return found


def fingerprint(module: fx.GraphModule) -> str:
    """A name for the graph: operations, shapes, types and devices."""
    lines = [str(torch.__version__), torch.cuda.get_device_name() if torch.cuda.is_available() else ""]
    for node in module.graph.nodes:
        value = node.meta.get("val")
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        shapes = [(tuple(t.shape), tuple(t.stride()), str(t.dtype), str(t.device)) for t in tensors]
        lines.append(f"{node.name} {node.op} {node.target} {node.args} {node.kwargs} {shapes}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]
