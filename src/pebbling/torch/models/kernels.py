"""The kernels that eager mode would have chosen, where tracing chooses others.

Batch norms, recurrent layers and dropout on the CPU have files of their own. A dropout that drops nothing is
traced into a copy, and eager mode copies nothing: in a graph where nothing is written in place, a copy that
nobody outside sees is not needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .host_dropout import as_host_dropout, host_dropout, host_dropout_backward
from .norms import NORMS, as_batch_norms
from .partition import is_tangent, output_of
from .recurrent import add_apart, as_recurrent_layers, lstm_layer
from .tangents import in_any_layout

aten = torch.ops.aten
OWN = (*NORMS, lstm_layer, add_apart, host_dropout, host_dropout_backward)
"""Functions that may stand in a captured graph beside torch's own operators."""


def as_in_eager_mode(module: fx.GraphModule, forward_outputs: int) -> None:
    """Put eager mode's kernels in place of those that were traced."""
    as_batch_norms(module.graph, forward_outputs)
    as_recurrent_layers(module.graph)
    as_host_dropout(module.graph)
    _drop_copies(module.graph)
    in_any_layout(module.graph, [node for node in module.graph.nodes if is_tangent(node)])


def _drop_copies(graph: fx.Graph) -> None:
    ends = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    outside = {key for node in (*ends, *output_of(graph).all_input_nodes) for key in _storages(node)}
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
