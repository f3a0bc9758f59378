"""Recurrent layers as eager mode runs them on the CPU.

A layer of oneDNN keeps what its derivative reads only if gradients are being recorded, which they are not
when a captured graph runs: ``lstm_layer`` tells it. A gated unit adds and applies the sigmoid in place, in
rows of a larger tensor, and a CPU rounds the ends of rows differently from their middle: ``add_apart`` keeps
the rows that tracing has packed together.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_BIASES = (3, 4)
_GATED = (torch.gru, torch.gru_cell, torch.nn.GRU, torch.nn.GRUCell)


def lstm_layer(*args: Any) -> tuple[torch.Tensor, ...]:
    """oneDNN's recurrent layer in training, with what its derivative reads among the results."""
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        found: tuple[torch.Tensor, ...] = aten.mkldnn_rnn_layer(*args)
    return found


def add_apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A sum whose rows are not next to each other."""
    wide = one.new_empty((*one.shape[:-1], one.shape[-1] + 1))
    return torch.add(one, other, out=wide[..., :-1])


def as_recurrent_layers(graph: fx.Graph) -> None:
    """Put them in place of what was traced: layers with a derivative in the graph, gates on the CPU."""
    for node in list(graph.nodes):
        if node.target is aten.mkldnn_rnn_layer.default and _derivatives(node):
            node.target = lstm_layer
            for derivative in _derivatives(node):
                _tell_biases_apart(derivative)
        elif node.target is aten.sigmoid.default and _is_gate(node):
            _add_apart(node.args[0])


def _derivatives(node: fx.Node) -> list[fx.Node]:
    readers = dict.fromkeys(reader for result in node.users for reader in result.users)
    return [reader for reader in readers if reader.target is aten.mkldnn_rnn_layer_backward.default]


def _tell_biases_apart(node: fx.Node) -> None:
    """Give the two equal gradients of biases a storage each, as autograd will: the tracer does so now and then."""
    picks: dict[Any, fx.Node] = {pick.args[1]: pick for pick in node.users if pick.args[1] in _BIASES}
    if any(user.op != "output" for pick in picks.values() for user in pick.users):
        return
    values = list(node.meta["val"])
    with values[_BIASES[0]].fake_mode:
        values[_BIASES[1]] = torch.empty_like(values[_BIASES[0]])
    node.meta["val"] = tuple(values)
    if len(picks) == 1:
        picks.update(_second_pick(node, *picks.values()))
    for place, pick in picks.items():
        pick.meta["val"] = values[place]


def _second_pick(node: fx.Node, pick: fx.Node) -> dict[Any, fx.Node]:
    """The other gradient, in the place of the last of several uses of the one that is picked."""
    (output,) = pick.users
    results = list(output.args[0])  # type: ignore[arg-type]
    places = [place for place, result in enumerate(results) if result is pick]
    if len(places) == 1:
        return {}
    other = sum(_BIASES) - int(pick.args[1])  # type: ignore[arg-type]
    with node.graph.inserting_after(pick):
        second = node.graph.call_function(operator.getitem, (node, other))
    second.meta = dict(pick.meta)
    results[places[-1]] = second
    output.args = (tuple(results),)
    return {other: second}


def _is_gate(node: fx.Node) -> bool:
    """Whether a node is a gate of a gated recurrent unit on the CPU."""
    total, sources = node.args[0], node.meta.get("source_fn_stack") or ()
    if not isinstance(total, fx.Node) or total.target is not aten.add.Tensor or len(total.users) != 1:
        return False
    gated = any(each == source[1] or _subclass(source[1], each) for source in sources for each in _GATED)
    return gated and node.meta["val"].device.type == "cpu" and len(total.args) == 2 and not total.kwargs


def _subclass(kind: Any, other: Any) -> bool:
    return isinstance(kind, type) and isinstance(other, type) and issubclass(kind, other)


def _add_apart(node: Any) -> None:
    value = node.meta["val"]
    with value.fake_mode:
        node.meta["val"] = value.new_empty((*value.shape[:-1], value.shape[-1] + 1))[..., :-1]
    node.target = add_apart
