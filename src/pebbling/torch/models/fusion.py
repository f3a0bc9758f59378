"""What inductor writes to memory: a graph of the values that are stored, with the fused work in between.

Inductor runs matrix products, convolutions and the like one by one, and fuses what is between them.
A value of fused work is stored only if something outside of its kernel reads it: an operation that is
not fused, work behind such an operation, the other pass, or the caller. Reductions are stored too. All
other values live in registers, and are computed again by every kernel that needs them.

Nodes of the graph are the makers of stored values; the fused work that each repeats is its cone. Times
of fused work are bytes over the measured bandwidth. Buffers that inductor reuses in place, and kernels
that it fuses across, are not foreseen: what a plan takes is measured, see ``search``.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ...graph import Graph, Node, Storage
from .costs import NEVER_MISSED, NodeCost, costs
from .partition import is_tangent, results_of
from .random import is_random

# What inductor fuses beside what torch tags as pointwise.
_FUSED = {
    "index", "embedding", "gather", "full", "full_like", "iota", "arange", "zeros", "zeros_like", "ones", "ones_like",
    "empty", "scalar_tensor", "new_zeros", "new_full", "copy", "_to_copy", "constant_pad_nd", "slice_scatter",
    "select_scatter", "inductor_lookup_seed", "inductor_random", "inductor_randint", "convert_element_type",
    "_low_memory_max_pool_offsets_to_indices", "native_dropout_backward", "_unsafe_index", "triu", "tril",
}  # fmt: skip
_REDUCTIONS = {
    "sum", "mean", "var", "var_mean", "std", "amax", "amin", "max", "min", "any", "all", "prod", "argmax", "argmin",
    "logsumexp", "prepare_softmax_online", "xor_sum",
}  # fmt: skip
_COLLECTIVES = ("_c10d_functional", "c10d_functional", "c10d")
# Seconds that starting one kernel takes.
_LAUNCH = 2e-6


@dataclass(frozen=True)
class Cone:
    """The fused work, views and picks that a maker runs, in order, itself last; and the stored values it reads."""

    members: tuple[fx.Node, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Fused:
    """A joint graph as inductor would store it."""

    module: fx.GraphModule
    forward_outputs: int
    later: frozenset[str]
    """Names of the nodes of the backward pass."""
    graph: Graph
    stored: frozenset[fx.Node]
    cones: dict[str, Cone]
    kinds: dict[fx.Node, str]
    carriers: dict[str, fx.Node]
    """The node whose value is each storage of the backward pass."""
    device: str | None
    estimated: bool


def fused(
    module: fx.GraphModule,
    forward_outputs: int,
    backward: frozenset[str] = frozenset(),
    changed: Collection[str] = (),
    most: int | None = None,
    name: str = "",
) -> Fused:
    """The graph of stored values of a joint graph.

    ``backward`` names the nodes of the backward pass, ``changed`` the inputs that are overwritten when the
    forward pass is over; ``most`` bounds the bytes that measuring one operation may take.
    """
    nodes = list(module.graph.nodes)
    kinds = _kinds(nodes)
    stored = _stored(nodes, kinds, backward)
    results = [node for node in results_of(module) if isinstance(node, fx.Node)]
    device = next((d for d in sorted(_devices(nodes)) if d.startswith("cuda")), None)
    grain = 1 if device is None else 512
    storages = _Storages(nodes, kinds, grain)
    own = [node for node in nodes if kinds[node] == "own"]
    known = costs(own, None if most is None else max(most, NEVER_MISSED))
    late = [node.args[0] for node in nodes if mutable(node)] + [node for node in nodes if node.name in changed]
    overwritten = {key for node in late if isinstance(node, fx.Node) for key in storages.of(node)}
    cones = {node.name: _cone(node, kinds, stored, storages) for node in nodes if node in stored}
    made: list[Node] = []
    for node in nodes:
        if node in stored:
            made.append(_node(node, cones[node.name], storages, known, overwritten, node.name in backward, device))
        elif node.op == "placeholder" and is_tangent(node):
            made.append(Node(node.name, (), storages.made(node), backward=True, replayable=False, op="tangent"))
    inputs = [
        Storage(each.name, each.bytes, True)
        for node in nodes
        if node.op == "get_attr" or (node.op == "placeholder" and not is_tangent(node))
        for each in storages.made(node)
    ]
    first, second = [n for n in made if not n.backward], [n for n in made if n.backward]
    outputs = dict.fromkeys(key for node in results for key in storages.of(node))
    graph = Graph([*first, *_behind(first, second)], inputs, outputs, name)
    estimated = any(cost.estimated for cost in known.values())
    carriers = _carriers([node for node in nodes if node.name in backward], storages)
    return Fused(module, forward_outputs, backward, graph, stored, cones, kinds, carriers, device, estimated)


def _kinds(nodes: list[fx.Node]) -> dict[fx.Node, str]:
    """Of each node: given, own (a kernel of its own), reduction, pointwise, or view."""
    kinds: dict[fx.Node, str] = {}
    for node in nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            kinds[node] = "given" if node.op != "output" else "output"
        elif mutable(node):
            kinds[node] = "own"
        elif node.target is operator.getitem or not _new(node):
            kinds[node] = "view"
        else:
            kinds[node] = _kernel(node)
    return kinds


def _kernel(node: Any) -> str:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        return "own"
    name = node.target.overloadpacket.__name__
    if is_random(node):
        return "own"
    if name in _REDUCTIONS:
        return "reduction"
    return "pointwise" if name in _FUSED or torch.Tag.pointwise in node.target.tags else "own"


def _stored(nodes: list[fx.Node], kinds: dict[fx.Node, str], backward: frozenset[str]) -> frozenset[fx.Node]:
    levels: dict[fx.Node, int] = {}
    roots: dict[fx.Node, tuple[fx.Node, ...]] = {}
    found: dict[fx.Node, None] = {}
    for node in nodes:
        kind = kinds[node]
        read = dict.fromkeys(root for argument in node.all_input_nodes for root in roots[argument])
        level = max((levels[root] for root in read), default=0)
        levels[node] = level + (kind == "own")
        roots[node] = tuple(read) if kind == "view" else (node,)
        if kind in ("own", "reduction"):
            found[node] = None
        if kind == "view":
            continue
        for root in read:
            apart = (root.name in backward) != (node.name in backward) or levels[root] < level
            if kinds[root] == "pointwise" and (apart or kind in ("own", "output")):
                found[root] = None
    return frozenset(found)


class _Storages:
    """Which storages each node's value lies in, and which it makes."""

    def __init__(self, nodes: list[fx.Node], kinds: dict[fx.Node, str], grain: int) -> None:
        self._made: dict[fx.Node, tuple[Storage, ...]] = {}
        self._of: dict[fx.Node, tuple[str, ...]] = {}
        self.bytes: dict[str, int] = {}
        names: dict[int, str] = {}
        for node in nodes:
            tensors = _tensors(node.meta.get("val"))
            fresh: list[Storage] = []
            lies: list[str] = []
            for tensor in tensors:
                content = tensor.untyped_storage()
                if content._cdata not in names:
                    key = node.name if len(tensors) == 1 else f"{node.name}.{len(fresh)}"
                    names[content._cdata] = key
                    fresh.append(Storage(key, -(-int(content.nbytes()) // grain) * grain))
                    self.bytes[key] = fresh[-1].bytes
                lies.append(names[content._cdata])
            self._made[node] = tuple(fresh)
            self._of[node] = tuple(dict.fromkeys(lies))

    def made(self, node: fx.Node) -> tuple[Storage, ...]:
        return self._made[node]

    def of(self, node: Any) -> tuple[str, ...]:
        return self._of[node]


def _carriers(nodes: list[fx.Node], storages: _Storages) -> dict[str, fx.Node]:
    """Nodes whose value is one whole storage, by its name."""
    return {
        storages.of(node)[0]: node
        for node in reversed(nodes)
        if isinstance(node.meta.get("val"), torch.Tensor)
        and (storages.made(node) or (node.target is operator.getitem and storages.made(node.all_input_nodes[0])))
    }


def _cone(maker: fx.Node, kinds: dict[fx.Node, str], stored: frozenset[fx.Node], storages: _Storages) -> Cone:
    """What is computed anew whenever a stored value is made, from other stored values on."""
    order: list[fx.Node] = []
    reads: dict[str, None] = {}
    seen: set[fx.Node] = {maker}
    stack: list[tuple[fx.Node, bool]] = [(argument, False) for argument in reversed(maker.all_input_nodes)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        if node in stored or kinds[node] == "given":
            reads.update((key, None) for key in storages.of(node))
            continue
        stack.append((node, True))
        picked = node.all_input_nodes[0] if node.target is operator.getitem else None
        if picked is not None and picked in stored:
            reads.update((key, None) for key in storages.of(node))
            continue
        stack += [(argument, False) for argument in reversed(node.all_input_nodes)]
    return Cone((*order, maker), tuple(reads))


def _node(
    node: Any,
    cone: Cone,
    storages: _Storages,
    known: dict[str, NodeCost],
    overwritten: set[str],
    backward: bool,
    device: str | None,
) -> Node:
    makes = storages.made(node)
    moved = sum(storages.bytes[key] for key in cone.reads) + sum(storage.bytes for storage in makes)
    cost = known.get(node.name, NodeCost(_LAUNCH + moved / bandwidth(device or "cpu")))
    once = mutable(node) or is_random(node) or not overwritten.isdisjoint(cone.reads) or _effect(node)
    return Node(
        node.name,
        cone.reads,
        makes,
        cost.time,
        cost.workspace,
        backward=backward,
        replayable=not once,
        random=is_random(node),
        op=" + ".join(_operator(each) for each in cone.members if _new(each))[:200] or _operator(node),
        module=_module(node),
        members=tuple(each.name for each in cone.members),
    )


def _behind(first: list[Node], second: list[Node]) -> list[Node]:
    """The backward nodes, after all of the forward pass that must not be left for later."""
    once = tuple(node.name for node in first if not node.replayable)
    made = {storage.name for node in second for storage in node.makes}
    return [replace(node, after=once) if made.isdisjoint(node.reads) else node for node in second]


@cache
def bandwidth(device: str) -> float:
    """Bytes that one pointwise kernel reads and writes in a second."""
    size = 2**24 if device == "cpu" else 2**27
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        if torch.device(device).type == "meta":
            return 1e12
        x = torch.ones(size // 4, device=device)
        y = torch.empty_like(x)
        best = float("inf")
        for _ in range(4):
            _wait(device)
            begun = perf_counter()
            torch.add(x, 1.0, out=y)
            _wait(device)
            best = min(best, perf_counter() - begun)
    return 2 * size / best


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def mutable(node: Any) -> bool:
    """Whether a node changes one of its arguments in place."""
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _effect(node: Any) -> bool:
    return getattr(node.target, "namespace", "") in _COLLECTIVES or "with_effects" in str(node.target)


def _new(node: fx.Node) -> bool:
    """Whether a node makes a storage."""
    read = {_key(t) for argument in node.all_input_nodes for t in _tensors(argument.meta.get("val"))}
    return node.target is not operator.getitem and any(_key(t) not in read for t in _tensors(node.meta.get("val")))


def _devices(nodes: Iterable[fx.Node]) -> set[str]:
    return {str(tensor.device) for node in nodes for tensor in _tensors(node.meta.get("val"))}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _operator(node: Any) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if packet is not None else getattr(node.target, "__name__", str(node.target))


def _module(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    places = [place[0] for place in stack.values() if isinstance(place, tuple) and place]
    return str(places[-1]) if places else ""
