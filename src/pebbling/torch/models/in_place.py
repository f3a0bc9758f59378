"""Operations that write over an operand which nobody reads again: one storage less while they run.

A captured graph is functional: ``x + f(x)`` allocates the sum beside what f returned. Where an operation
is its operand's only reader, and directly follows the one that made it or could, as all else that it
reads is there by then, the two become one node, which makes a single storage. The kernels are those of
the in-place variants, which compute what the functional ones compute. The gain is largest where the peak
is least avoidable: at a loss over many classes the gradient of the scores takes the place of what it is
computed from.

Left alone: random operations, effects, operands that are views of something larger, and operations that
read what is made after their operand, since moving that could lengthen the life of what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from .kernels import OWN
from .partition import picks
from .random import is_random
from .tangents import any_layout

aten = torch.ops.aten

# The variant that writes over an operand, the positions of operands it may write over, and the name of the
# argument that says where to, None where it is the first operand itself.
_VARIANTS: dict[Any, tuple[Any, tuple[int, ...], str | None]] = {
    aten.relu.default: (aten.relu_.default, (0,), None),
    aten.add.Tensor: (aten.add_.Tensor, (0, 1), None),
    aten.mul.Tensor: (aten.mul_.Tensor, (0, 1), None),
    aten.sub.Tensor: (aten.sub_.Tensor, (0,), None),
    aten.div.Tensor: (aten.div_.Tensor, (0,), None),
    aten.div.Scalar: (aten.div_.Scalar, (0,), None),
    aten.mul.Scalar: (aten.mul_.Scalar, (0,), None),
    aten.masked_fill.Scalar: (aten.masked_fill_.Scalar, (0,), None),
    aten._log_softmax.default: (aten._log_softmax.out, (0,), "out"),
    aten._softmax.default: (aten._softmax.out, (0,), "out"),
    aten._log_softmax_backward_data.default: (aten._log_softmax_backward_data.out, (0,), "out"),
    aten._softmax_backward_data.default: (aten._softmax_backward_data.out, (0,), "grad_input"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, (0,), "grad_input"),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, (0,), "grad_input"),
    aten.silu_backward.default: (aten.silu_backward.grad_input, (0,), "grad_input"),
    aten.sigmoid_backward.default: (aten.sigmoid_backward.grad_input, (0,), "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, (0,), "grad_input"),
}


@dataclass(frozen=True)
class JoinedNode:
    """Names and operators of the operations that a node stands for."""

    names: tuple[str, ...]
    operators: tuple[str, ...]


def join_in_place(module: fx.GraphModule, backward: set[str]) -> dict[str, JoinedNode]:
    """Join operations in the graph; what the new nodes stand for, by name."""
    joined: dict[str, JoinedNode] = {}
    last: fx.Node | None = None
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not _allocates(node):
            continue
        found = _join(module.graph, last, node, backward, joined)
        if found is None:
            last = node
        elif last is found[0]:
            last = found[1]
    return joined


def _join(
    graph: fx.Graph,
    last: fx.Node | None,
    second: fx.Node,
    backward: set[str],
    joined: dict[str, JoinedNode],
) -> tuple[fx.Node, fx.Node] | None:
    """The node that an operation was joined to and the one that stands for both, or None if it is to stay."""
    if second.target not in _VARIANTS:
        return None
    _, positions, _ = _VARIANTS[second.target]
    for position in positions:
        first = _source(second, position)
        if first is None or not _may_lead(first, joined) or (first.name in backward) != (second.name in backward):
            continue
        path = _path(first, second, position)
        if path is None:
            continue
        where = second if first is last else first
        if not _there(where, [node for node in second.all_input_nodes if node not in (first, *path)]):
            continue
        return first, _replace(graph, first, path, second, position, backward, joined, where)
    return None


def _there(where: fx.Node, nodes: list[fx.Node]) -> bool:
    """Whether the nodes come before another one, or can: views that come later are moved."""
    later: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node < where:
            continue
        if node.op != "call_function" or picks(node) or _allocates(node):
            return False
        later.add(node)
        stack += node.all_input_nodes
    for node in sorted(later):
        where.prepend(node)
    return True


def _source(second: fx.Node, position: int) -> fx.Node | None:
    """The operation that allocated an operand."""
    return _maker(second.args[position] if position < len(second.args) else None)


def _maker(node: Any) -> fx.Node | None:
    """The operation that a value, a view or one result of several comes from."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        if _allocates(node):
            return node
        node = node.all_input_nodes[0] if node.all_input_nodes else None
    return None


def _may_lead(node: fx.Node, joined: dict[str, JoinedNode]) -> bool:
    if is_random(node):
        return False
    if node.name in joined or node.target in OWN:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return getattr(node.target, "namespace", "") == "aten" and not node.target._schema.is_mutable


def _path(first: fx.Node, second: fx.Node, position: int) -> list[fx.Node] | None:
    """Views and picks from a node to an operand that may be written over, the operand last."""
    operand = second.args[position] if position < len(second.args) else None
    if not isinstance(operand, fx.Node) or second.all_input_nodes.count(operand) != 1:
        return None
    if sum(argument is operand for argument in second.args) != 1 or second.kwargs.get("alpha", 1) != 1:
        return None
    if not _same(operand.meta.get("val"), second.meta.get("val")):
        return None
    path = [operand]
    while path[-1] is not first:
        node = path[-1]
        if node.op != "call_function" or _allocates(node) or not node.all_input_nodes or len(node.users) != 1:
            return None
        path.append(node.all_input_nodes[0])
    path.reverse()
    picked = [user for user in first.users if picks(user)]
    if not picked and len(first.users) != 1:
        return None
    if picked and (len(path) < 2 or not picks(path[1])):
        return None
    others = [each for each in second.all_input_nodes if each is not operand]
    if any(_maker(each) is first for each in others):
        return None
    shared = {_storage(each.meta["val"]) for each in others if _tensor(each)}
    return None if _storage(operand.meta["val"]) in shared else path[1:]


def _replace(
    graph: fx.Graph,
    first: Any,
    path: list[Any],
    second: Any,
    position: int,
    backward: set[str],
    joined: dict[str, JoinedNode],
    where: Any,
) -> fx.Node:
    inside = {first, *path}
    read = [argument for node in (first, *path, second) for argument in node.all_input_nodes]
    inputs = list(dict.fromkeys(node for node in read if node not in inside))
    pick = path[0].args[1] if path and picks(path[0]) else None
    run = _function(first, path, second, position, inputs, pick, again=False)
    if hasattr(first.target, "again"):
        # By the time of a replay the running statistics have changed: it does not take them.
        stale = [first.args[i] for i in first.target.stale if first.args[i] is not None]
        run.again = _function(first, path, second, position, inputs, pick, again=True)
        run.stale = [inputs.index(node) for node in stale]
    with graph.inserting_before(where):
        node = graph.call_function(run, tuple(inputs))
    node.meta = dict(second.meta)
    before = joined.pop(first.name, None)
    names = before.names if before else (first.name,)
    operators = before.operators if before else (_operator(first),)
    joined[node.name] = JoinedNode((*names, second.name), (*operators, str(second.target)))
    if first.name in backward:
        backward.add(node.name)
    if pick is None:
        second.replace_all_uses_with(node)
    else:
        values = list(first.meta["val"])
        values[pick] = second.meta["val"]
        node.meta["val"] = tuple(values)
        with graph.inserting_before(where):
            result = graph.call_function(path[0].target, (node, pick))
        result.meta = dict(second.meta)
        second.replace_all_uses_with(result)
        for user in list(first.users):
            if user is not path[0]:
                user.replace_input_with(first, node)
                result.append(user)
    for each in (second, *reversed(path), first):
        graph.erase_node(each)
    return node


def _function(
    first: Any, path: list[Any], second: Any, position: int, inputs: list[Any], pick: Any, again: bool
) -> Any:
    """A function of the inputs that runs both, the second over the result of the first.

    What writes over an operand takes its layout. So where layouts may be others than those that were traced, see
    ``tangents``, and are, the second has a result of its own.
    """
    over = _body(first, path, second, position, inputs, pick, again)
    plain = _body(first, path, second, None, inputs, pick, again)
    beside = fx.GraphModule({}, plain).forward if any(map(any_layout, (first, *path, second))) else None
    forward = fx.GraphModule({}, over).forward
    layouts = [_layout(node.meta.get("val")) for node in inputs]

    def run(*inputs: Any) -> Any:
        if beside is None or layouts == [_layout(each) for each in inputs]:
            return forward(*inputs)
        return beside(*inputs)

    run.__name__ = run.__qualname__ = f"{first.name}_then_{second.name}"
    run.plain = plain  # type: ignore[attr-defined]
    return run


def _body(
    first: Any, path: list[Any], second: Any, position: int | None, inputs: list[Any], pick: Any, again: bool
) -> fx.Graph:
    """The two operations, the second over its operand at a position, or over none."""
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    for node in inputs:
        values[node] = graph.placeholder(node.name)
        values[node].meta = dict(node.meta)
    if again and hasattr(first.target, "again"):
        values[first] = graph.call_function(first.target.again, fx.node.map_arg(first.args, values.__getitem__))
    else:
        values[first] = graph.node_copy(first, values.__getitem__)
    for node in path:
        values[node] = graph.node_copy(node, values.__getitem__)
    operand = path[-1] if path else first
    variant, _, where = _VARIANTS[second.target]
    args, kwargs = fx.node.map_arg((second.args, second.kwargs), values.__getitem__)
    if position is None:
        result = graph.call_function(second.target, args, kwargs)
    elif where is not None:
        result = graph.call_function(variant, args, {**kwargs, where: values[operand]})
    else:
        rest = [argument for i, argument in enumerate(args) if i != position]
        result = graph.call_function(variant, (values[operand], *rest), kwargs)
    result.meta = dict(second.meta)
    if pick is not None:
        picked = [graph.call_function(path[0].target, (values[first], i)) for i in range(len(first.meta["val"]))]
        for value, node in zip(first.meta["val"], picked):
            node.meta = {"val": value}
        picked[pick] = result
        graph.output(tuple(picked))
    else:
        graph.output(result)
    return graph


def _layout(value: Any) -> tuple[int, ...] | None:
    return value.stride() if isinstance(value, torch.Tensor) else None


def _allocates(node: fx.Node) -> bool:
    """Whether a node makes a storage, and is no view or pick of another's result."""
    if picks(node):
        return False
    read = {_storage(leaf) for argument in node.all_input_nodes for leaf in _tensors(argument.meta.get("val"))}
    return any(_storage(leaf) not in read for leaf in _tensors(node.meta.get("val")))


def _same(operand: Any, result: Any) -> bool:
    """Whether a result fits exactly where an operand is, and that is all there is in its storage."""
    if not isinstance(operand, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    full = operand.untyped_storage().nbytes() == operand.numel() * operand.element_size()
    facts = ("shape", "dtype", "device")
    return (
        full and operand.stride() == result.stride() and all(getattr(operand, f) == getattr(result, f) for f in facts)
    )


def _operator(node: Any) -> str:
    return node.target.__name__ if node.target in OWN else str(node.target)


def _tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
