"""torch's own cut between forward and backward as one graph: where planning for inductor begins.

``min_cut_rematerialization_partition`` knows what inductor fuses: pointwise work is repeated in the
backward pass wherever that saves memory and costs nothing. Its two graphs, put together again, are a
graph whose backward pass reads from the forward pass only what a compiled model would keep. What is
replayed beyond that has a price, and is the solver's to choose.

It keeps what the backward pass would have to write out, though it fuses. With ``freely`` it does not: the
forward pass writes less, and the backward pass computes more. Which of the two is faster depends on the
kernels that come out, so that both are places to begin. Two more cautions, about work that is long or far
from where it is read again, are left in force: without them the whole stream of a residual network is
computed again at the beginning of the backward pass, and kept until its end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch._functorch.config
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils.checkpoint import CheckpointPolicy

from ...errors import CaptureError
from .fusion import mutable
from .partition import is_tangent, results_of

_CAUTION = "ban_recompute_materialized_backward"


def own_cut(
    joint: fx.GraphModule, inputs: Any, changed: Collection[str] = (), freely: bool = False, **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph that torch.compile would make of a joint graph.

    With ``freely`` it also repeats work that fuses but has to be written out again.

    But for one thing: torch.compile may repeat work on an input in the backward pass when the input has been
    changed in place. Here what is read of it later is a copy. ``changed`` names such inputs, beside those which
    the graph itself changes.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    _copy_changed(joint, changed)
    with torch._functorch.config.patch({_CAUTION: False} if freely else {}):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    return forward, backward


def _copy_changed(joint: fx.GraphModule, changed: Collection[str]) -> None:
    """Let what leads to gradients read copies of the inputs that are changed, made before that and never made again."""
    nodes = list(joint.graph.nodes)
    targets = {node.args[0] for node in nodes if node.target is torch.ops.aten.copy_.default}
    last = [node for node in nodes if node.op == "placeholder"][-1]
    leading = _leading_to_gradients(nodes)
    for node in nodes:
        if node.op != "placeholder" or not (node in targets or node.name in changed):
            continue
        readers = [user for user in node.users if user in leading]
        if not readers:
            continue
        with joint.graph.inserting_after(last), node.meta["val"].fake_mode:
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = {"val": node.meta["val"].clone(), "recompute": CheckpointPolicy.MUST_SAVE}
        for user in readers:
            user.replace_input_with(node, copy)


def _leading_to_gradients(nodes: list[fx.Node]) -> set[fx.Node]:
    """What gradients are computed from, those of the outputs included."""
    after: set[fx.Node] = set()
    for node in nodes:
        if is_tangent(node) or not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    found: set[fx.Node] = set()
    stack = [node for node in after if node.op != "output"]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def join(
    forward: fx.GraphModule, backward: fx.GraphModule, forward_outputs: int
) -> tuple[fx.GraphModule, frozenset[str]]:
    """Both as one graph, whose results are those of the model, then the gradients; names of the backward nodes.

    What the backward pass repeats of the forward pass stands right before it is read.
    """
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in forward.graph.nodes:
        if node.op != "output":
            values[node] = graph.node_copy(node, values.__getitem__)
    kept = {node.name: value for node, value in values.items()}
    later: set[str] = set()
    for node in _when_needed(backward):
        if node.op == "placeholder" and not is_tangent(node):
            if node.name not in kept:
                raise CaptureError(
                    f"the backward pass takes {node.name!r}, which the forward pass does not make: inductor can't be "
                    "planned for random operations inside of torch.utils.checkpoint; leave the checkpoints to fit"
                )
            values[node] = kept[node.name]
        elif node.op != "output":
            values[node] = graph.node_copy(node, values.__getitem__)
            later.add(values[node].name)
    results = [*results_of(forward)[:forward_outputs], *results_of(backward)]
    graph.output(tuple(values[node] if isinstance(node, fx.Node) else node for node in results))
    graph.eliminate_dead_code()
    return _with_values(fx.GraphModule(_attributes(forward, backward), graph)), frozenset(later)


def _when_needed(backward: fx.GraphModule) -> list[fx.Node]:
    """The nodes of the backward pass, in an order in which work that waits for no gradient is left for later."""
    nodes = list(backward.graph.nodes)
    if any(mutable(node) for node in nodes):
        return nodes
    waiting: set[fx.Node] = set()
    for node in nodes:
        if is_tangent(node) or not waiting.isdisjoint(node.all_input_nodes):
            waiting.add(node)
    order: dict[fx.Node, None] = dict.fromkeys(node for node in nodes if node.op == "placeholder")
    for node in [*(node for node in nodes if node in waiting), nodes[-1]]:
        stack = [node]
        while stack:
            before = [each for each in stack[-1].all_input_nodes if each not in order]
            if before:
                stack += reversed(before)
            else:
                order[stack.pop()] = None
    return list(order)


def _attributes(*modules: fx.GraphModule) -> dict[str, Any]:
    """What the modules' graphs take from them by name."""
    return {
        str(node.target): _get(module, str(node.target))
        for module in modules
        for node in module.graph.nodes
        if node.op == "get_attr"
    }


def _get(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _with_values(module: fx.GraphModule) -> fx.GraphModule:
    """The module with fake tensors of its own: a node that stands in both graphs makes two storages, not one."""
    given = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = next((value.fake_mode for value in given if hasattr(value, "fake_mode")), None)
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*given)
    return module
