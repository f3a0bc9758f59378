"""The kernels that eager mode would have chosen, where tracing chooses others.

AOTAutograd traces every batch norm into the native one, since cuDNN's changes the running statistics
without saying so. Where eager mode would have used cuDNN, so does the captured graph: with copies of
the statistics, which become their new values as those of the native one do. A dropout that drops nothing
is traced into a copy, and eager mode copies nothing: in a graph where nothing is written in place, a copy that
nobody outside sees is not needed.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .host_dropout import as_host_dropout, host_dropout, host_dropout_backward
from .recurrent import add_apart, as_recurrent_layers, lstm_layer

aten = torch.ops.aten


def cudnn_norm(
    data: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    """cuDNN's batch norm in training, with the new statistics among the results."""
    mean, var = mean.clone(), var.clone()
    result, batch_mean, deviation, reserve = aten.cudnn_batch_norm(data, weight, bias, mean, var, True, momentum, eps)
    return result, batch_mean, deviation, mean, var, reserve


def cudnn_norm_again(
    data: torch.Tensor, weight: Any, bias: Any, mean: None, var: None, momentum: float, eps: float
) -> tuple[Any, ...]:
    """The same without statistics."""
    result, *rest, reserve = aten.cudnn_batch_norm(data, weight, bias, None, None, True, momentum, eps)
    return result, *rest, None, None, reserve


def cudnn_norm_backward(
    gradient: torch.Tensor, data: torch.Tensor, weight: Any, mean: Any, deviation: Any, eps: float, reserve: Any
) -> tuple[torch.Tensor, ...]:
    """Gradients of the data, the weight and the bias."""
    found: tuple[torch.Tensor, ...] = aten.cudnn_batch_norm_backward(
        data, gradient, weight, None, None, mean, deviation, eps, reserve
    )
    return found


cudnn_norm.again, cudnn_norm.stale = cudnn_norm_again, (3, 4)  # type: ignore[attr-defined]
OWN = (cudnn_norm, cudnn_norm_backward, lstm_layer, add_apart, host_dropout, host_dropout_backward)
"""Functions that may stand in a captured graph beside torch's own operators."""


def as_in_eager_mode(module: fx.GraphModule) -> None:
    """Put eager mode's kernels in place of those that were traced."""
    for node in list(module.graph.nodes):
        if node.target is aten._native_batch_norm_legit_functional.default and node.args[5] is True:
            pulls = [each for each in _backward_of(node) if tuple(each.args[9]) == (True, True, True)]
            if len(pulls) == len(_backward_of(node)) and _cudnn(node):
                _to_cudnn(module.graph, node, pulls)
    as_recurrent_layers(module.graph)
    as_host_dropout(module.graph)
    _drop_copies(module.graph)


def _drop_copies(graph: fx.Graph) -> None:
    ends = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    output = next(node for node in graph.nodes if node.op == "output")
    outside = {key for node in (*ends, *output.all_input_nodes) for key in _storages(node)}
    for node in list(graph.nodes):
        if node.target is not aten.clone.default:
            continue
        source, own = node.args[0], _storages(node)
        seen = own | _storages(source)
        looked_into = any(own & _storages(user) for user in node.users)
        same = node.meta["val"].stride() == source.meta["val"].stride()
        if same and not looked_into and not seen & outside:
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _storages(node: Any) -> set[int]:
    values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return {value.untyped_storage()._cdata for value in values if isinstance(value, torch.Tensor)}


def _cudnn(node: Any) -> bool:
    data, weight, bias, mean, var = (each and each.meta["val"] for each in node.args[:5])
    if data.device.type != "cuda" or weight is None or mean is None:
        return False
    chosen = torch._C._select_batch_norm_backend(data, weight, bias, mean, var, True, node.args[7])
    return bool(chosen == torch._C._BatchNormBackend.Cudnn)  # type: ignore[attr-defined]


def _reserve(data: torch.Tensor) -> int:
    return int(torch._C._get_cudnn_batch_norm_reserve_space_size(data, True))  # type: ignore[attr-defined]


def _backward_of(node: fx.Node) -> list[Any]:
    means = [user for user in node.users if user.target is operator.getitem and user.args[1] == 1]
    return [
        user
        for mean in means
        for user in mean.users
        if user.target is aten.native_batch_norm_backward.default and user.args[5] is mean
    ]


def _to_cudnn(graph: fx.Graph, node: fx.Node, pulls: list[fx.Node]) -> None:
    data, weight, bias, mean, var, _, momentum, eps = node.args
    with graph.inserting_before(node):
        other = graph.call_function(cudnn_norm, (data, weight, bias, mean, var, momentum, eps))
    assert isinstance(data, fx.Node)
    value = data.meta["val"]
    with value.fake_mode:
        space = torch.empty(_reserve(value), dtype=torch.uint8, device=value.device)
    other.meta = dict(node.meta)
    other.meta["val"] = (*node.meta["val"], space)
    node.replace_all_uses_with(other)
    graph.erase_node(node)
    with graph.inserting_after(other):
        reserve = graph.call_function(operator.getitem, (other, 5))
    reserve.meta["val"] = space
    for pull in pulls:
        gradient, values, scale, _, _, batch_mean, deviation, _, _, _ = pull.args
        with graph.inserting_before(pull):
            args = (gradient, values, scale, batch_mean, deviation, eps, reserve)
            back = graph.call_function(cudnn_norm_backward, args)
        back.meta = dict(pull.meta)
        pull.replace_all_uses_with(back)
        graph.erase_node(pull)
