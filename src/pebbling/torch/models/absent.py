"""A backward pass without the gradients that did not come.

Where a loss leaves an output out, autograd hands zeros to a captured backward pass. Eager mode runs nothing for
such an output; zeros cost time, become NaN where they meet an infinite derivative, bring their own layout into
sums, and come out as gradients of parameters that have none. So what depends on them alone is left out, and in
a sum the other term stays. Where both kinds meet in another operation, eager mode makes zeros, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx

from .partition import picks

aten = torch.ops.aten
ABSENT = None
"""Stands for the value of what is left out, among those of the graph that is written."""


def without(module: fx.GraphModule, tangents: Collection[fx.Node], absent: Collection[fx.Node]) -> fx.GraphModule:
    """The module without what depends on absent tangents; gradients that only they would have made are None."""
    writer = _AbsentWriter()
    values: dict[Any, Any] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = writer.graph.node_copy(node)
            if node in tangents:
                writer.live.add(value)
            values[node] = ABSENT if node in absent else value
    rest = [node for node in module.graph.nodes if node.op != "placeholder"]
    results = writer.write(rest, values)
    writer.graph.output(results)
    writer.graph.eliminate_dead_code()
    return fx.GraphModule(module, writer.graph)


class _AbsentWriter:
    """A graph under construction, and which of its nodes depend on gradients that came."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.live: set[fx.Node] = set()

    def write(self, nodes: Iterable[Any], values: dict[Any, Any]) -> Any:
        """Write nodes of another graph, whose arguments are among the values; what that graph returns."""
        for node in nodes:
            if node.op == "output":
                return fx.node.map_arg(node.args[0], values.__getitem__)
            values[node] = self._value(node, values)
        raise ValueError("a graph without an output")

    def _value(self, node: Any, values: dict[Any, Any]) -> Any:
        inputs = node.all_input_nodes
        if picks(node) and isinstance(values[inputs[0]], tuple):
            return values[inputs[0]][node.args[1]]
        missing = [each for each in inputs if values[each] is ABSENT]
        there = [values[each] for each in inputs if values[each] is not ABSENT]
        if missing and self.live.isdisjoint(there):
            return ABSENT
        if missing and hasattr(node.target, "plain"):
            plain = node.target.plain
            given = dict(zip(plain.find_nodes(op="placeholder"), (values[each] for each in node.args), strict=True))
            return self.write((each for each in plain.nodes if each.op != "placeholder"), given)
        if missing and _sum(node):
            return there[0]
        for each in missing:
            values = {**values, each: self._zeros(each.meta["val"])}
        copy = self.graph.node_copy(node, values.__getitem__)
        if not self.live.isdisjoint(there):
            self.live.add(copy)
        return copy

    def _zeros(self, like: torch.Tensor) -> fx.Node:
        facts: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        return self.graph.call_function(aten.zeros.default, (list(like.shape),), facts)


def _sum(node: Any) -> bool:
    """Whether a node adds two values of the same shape, and nothing else."""
    if node.target is not aten.add.Tensor or len(node.all_input_nodes) != 2 or node.kwargs:
        return False
    return len({each.meta["val"].shape for each in (node, *node.all_input_nodes)}) == 1
