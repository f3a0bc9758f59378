"""Dropout on the host, bit for bit as eager mode rounds it, with a mask of one byte.

Tracing turns a dropout into ``native_dropout``, which multiplies by the mask and then by ``1 / (1 - p)``.
On the host eager mode multiplies once, by noise of the values' own type that was divided by ``1 - p``: for
many ``p``, and for numbers of 16 bits, the last bit differs. It keeps that noise for the backward pass. What
stands here multiplies by the same numbers, and keeps which of them were drawn. On a GPU both are one kernel.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def host_dropout(values: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What is left of the values, and which were kept."""
    if p == 1.0:
        return values.mul(torch.zeros((), dtype=values.dtype)), torch.zeros_like(values, dtype=torch.bool)
    kept = torch.empty_like(values, dtype=torch.bool).bernoulli_(1 - p)
    return host_dropout_backward(values, kept, p), kept


def host_dropout_backward(gradient: torch.Tensor, kept: torch.Tensor, p: float) -> torch.Tensor:
    """The gradient of the values."""
    noise = torch.ones((), dtype=gradient.dtype)
    return gradient.mul(kept).mul_(noise.div_(1 - p)) if p < 1.0 else gradient.mul(torch.zeros_like(noise))


host_dropout.tags = (torch.Tag.nondeterministic_seeded,)  # type: ignore[attr-defined]


def as_host_dropout(graph: fx.Graph) -> None:
    """Put eager mode's dropout in place of every traced one on the host."""
    for node in list(graph.nodes):
        if node.target is not aten.native_dropout.default or node.args[2] is not True:
            continue
        values, p = node.args[:2]
        if values.meta["val"].device.type != "cpu":
            continue
        masks = [user for user in node.users if user.target is operator.getitem and user.args[1] == 1]
        pulls = [user for mask in masks for user in mask.users if user.target is aten.native_dropout_backward.default]
        _replace(graph, node, host_dropout, (values, p))
        for pull in pulls:
            _replace(graph, pull, host_dropout_backward, (*pull.args[:2], p))


def _replace(graph: fx.Graph, node: Any, target: Any, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        other = graph.call_function(target, arguments)
    other.meta = dict(node.meta)
    node.replace_all_uses_with(other)
    graph.erase_node(node)
