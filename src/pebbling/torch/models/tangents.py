"""Gradients of outputs in the layout in which they come, as eager mode takes them.

A sum outside of the model sends back one number seen many times, a transposition its gradient transposed.
AOTAutograd traced the backward pass for gradients as dense as the outputs, and would copy these: the same
numbers, but a matrix product or a batch norm over another layout rounds differently. Here they go on as they
came, which every operator of torch's takes, and with them what eager mode asks of layouts: a view that they do
not allow is a copy, and where it makes a gradient dense before it calls a kernel, so does the captured graph.
Operators of others get what they were traced with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .norms import cudnn_batch_norm_backward

aten = torch.ops.aten
# By torch's own rules of differentiation, these get gradients that were made dense before.
_DENSE = (
    aten.native_group_norm_backward.default,
    aten._cdist_backward.default,
    aten._weight_norm_interface_backward.default,
    aten.as_strided.default,
    aten.as_strided_scatter.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
    cudnn_batch_norm_backward,
)
_MARK = "any_layout"


def laid_out(values: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """The values with these strides, copied if they have others."""
    if list(values.stride()) == strides:
        return values
    return torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device).copy_(values)


def in_any_layout(graph: fx.Graph, tangents: list[fx.Node]) -> None:
    """Let the backward pass take gradients of outputs in other layouts than it was traced with."""
    touched = {node for node in tangents if may_differ(node)}
    for node in touched:
        node.meta[_MARK] = True
    for node in list(graph.nodes):
        if node.op != "call_function" or touched.isdisjoint(node.all_input_nodes):
            continue
        touched.add(node)
        node.meta[_MARK] = True
        if node.target is aten.view.default:
            node.target = aten.reshape.default
        elif node.target in _DENSE or _of_others(node):
            for argument in node.all_input_nodes:
                if argument in touched and isinstance(argument.meta["val"], torch.Tensor):
                    _lay_out(graph, argument, node)


def any_layout(node: fx.Node) -> bool:
    """Whether the layout of a node's result depends on that of a gradient that comes from outside."""
    return _MARK in node.meta


def may_differ(tangent: fx.Node) -> bool:
    """Whether a gradient of an output can come in another layout than the one that was traced: a number can't."""
    return bool(tangent.meta["val"].dim() > 0)


def _of_others(node: Any) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace != "aten"
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _lay_out(graph: fx.Graph, argument: fx.Node, user: fx.Node) -> None:
    with graph.inserting_before(user):
        dense = graph.call_function(laid_out, (argument, list(argument.meta["val"].stride())))
    dense.meta = dict(argument.meta)
    user.replace_input_with(argument, dense)
