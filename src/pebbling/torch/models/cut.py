"""torch's own cut between forward and backward as one graph: where planning for inductor begins.

``min_cut_rematerialization_partition`` knows what inductor fuses: pointwise work is repeated in the
backward pass wherever that saves memory and costs nothing. Its two graphs, put together again, are a
graph whose backward pass reads from the forward pass only what a compiled model would keep. What is
replayed beyond that has a price, and is the solver's to choose.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils.checkpoint import CheckpointPolicy

from ...errors import CaptureError
from .partition import is_tangent, results_of


def own_cut(
    joint: fx.GraphModule, inputs: Any, changed: Collection[str] = (), **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph that torch.compile would make of a joint graph.

    But for one thing: torch.compile may repeat work on an input in the backward pass when the input has been
    changed in place. Here what is read of it later is a copy. ``changed`` names such inputs, beside those which
    the graph itself changes.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    _copy_changed(joint, changed)
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    return forward, backward


def _copy_changed(joint: fx.GraphModule, changed: Collection[str]) -> None:
    """Let everybody read copies of the inputs that are changed, made before that and never made again."""
    nodes = list(joint.graph.nodes)
    targets = {node.args[0] for node in nodes if node.target is torch.ops.aten.copy_.default}
    last = [node for node in nodes if node.op == "placeholder"][-1]
    for node in nodes:
        if node.op != "placeholder" or not (node in targets or node.name in changed):
            continue
        passed = (torch.ops.aten.copy_.default, "output")
        readers = [user for user in node.users if user.target not in passed]
        if not readers:
            continue
        with joint.graph.inserting_after(last), node.meta["val"].fake_mode:
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = {"val": node.meta["val"].clone(), "recompute": CheckpointPolicy.MUST_SAVE}
        for user in readers:
            user.replace_input_with(node, copy)


def join(
    forward: fx.GraphModule, backward: fx.GraphModule, forward_outputs: int
) -> tuple[fx.GraphModule, frozenset[str]]:
    """Both as one graph, whose results are those of the model, then the gradients; names of the backward nodes."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in forward.graph.nodes:
        if node.op != "output":
            values[node] = graph.node_copy(node, values.__getitem__)
    kept = {node.name: value for node, value in values.items()}
    later: set[str] = set()
    for node in backward.graph.nodes:
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
