"""A plan over stored values as two FX graphs for inductor.

The order of the plan is the order of the graphs. A forward value that is replayed in the backward pass
is written out again with its own copy of the fused work in front of it, so that nothing of the first
run has to stay for it. All that such a replay reads is there from the start, and inductor would gladly
do it there, along with other work on the same values, and keep the result. So a replay of fused work
also looks at the latest gradient: what it looks at makes no difference, but it has to be there.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ...errors import CaptureError
from ...graph import Compute, Free, GraphPlan, Step
from .fusion import Fused, mutable
from .partition import describe, is_tangent, results_of

aten = torch.ops.aten


def emit(plan: GraphPlan, what: Fused, joint: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward module of a plan, in the calling convention of AOTAutograd.

    ``joint`` is the graph that AOTAutograd handed over: its notes about results are handed back.
    """
    nodes = list(what.module.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    results = results_of(what.module)
    wanted, gradients = results[: what.forward_outputs], results[what.forward_outputs :]
    kept: list[fx.Node] = []
    for _ in range(2):
        # Once to see what is read from the forward pass, and again with placeholders for that in front.
        second = _Pass(what, [*kept, *(node for node in placeholders if is_tangent(node))], later=True)
        second.write(plan.backward)
        second.finish(gradients)
        kept = sorted([*kept, *second.missing], key=lambda n: bool(n.meta.get("saved_tensor_with_no_vc_check", False)))
    first = _Pass(what, [node for node in placeholders if not is_tangent(node)], later=False)
    first.write(plan.forward)
    output = first.finish([*wanted, *kept])
    describe(output, joint, what.forward_outputs, len(wanted) + len(kept))
    describe(second.output, joint, None, len(gradients))
    return fx.GraphModule(what.module, first.graph), fx.GraphModule(what.module, second.graph)


class _Pass:
    """One of the two graphs under construction, and where values of the joint graph are in it."""

    def __init__(self, what: Fused, given: list[fx.Node], later: bool) -> None:
        self.what, self.later = what, later
        self.by_name = {node.name: node for node in what.module.graph.nodes}
        self.graph = fx.Graph()
        self.values: dict[fx.Node, fx.Node] = {}
        self.missing: list[fx.Node] = []
        self.ran: set[str] = set()
        self.last: list[fx.Node] = []
        self.alive: dict[str, fx.Node] = {}
        self.output: Any = None
        for node in given:
            self.values[node] = placeholder = self.graph.placeholder(node.name)
            placeholder.meta = dict(node.meta)

    def write(self, steps: tuple[Step, ...]) -> None:
        """The runs of a plan, in order; what is changed in place is changed at the end."""
        for step in steps:
            if isinstance(step, Compute):
                self._step(self.by_name[step.node])
            elif isinstance(step, Free):
                self.alive.pop(step.storage, None)

    def _step(self, node: fx.Node) -> None:
        own = self.what.graph.node[node.name]
        again = node.name in self.ran or (self.later and not own.backward)
        self.ran.add(node.name)
        if mutable(node):
            self.last.append(node)
        elif node.op != "placeholder":
            self._run(node, again)
        if own.backward:
            self.alive.update((s.name, self.what.carriers[s.name]) for s in own.makes if s.name in self.what.carriers)

    def finish(self, results: list[Any]) -> fx.Node:
        """The output, after what is changed in place."""
        for node in self.last:
            self._run(node, False)
        values = tuple(self._view(node) if isinstance(node, fx.Node) else node for node in results)
        self.output = self.graph.output(values)
        return self.output

    def _run(self, maker: fx.Node, again: bool) -> None:
        own: dict[fx.Node, fx.Node] = {}
        members = self.what.cones[maker.name].members
        for node in members:
            # Work of the pass itself is shared by all who need it; of what is run again everybody has a copy.
            shared = not again and not (self.later and not self._backward(node))
            if shared and node in self.values and node is not maker:
                continue
            copy = self._copy(node, own)
            if copy is not None:
                (self.values if shared else own)[node] = copy
        if again:
            self.values[maker] = self._not_before(own[maker]) if self._fuses(maker) else own[maker]

    def _fuses(self, maker: fx.Node) -> bool:
        return self.later and self.what.kinds[maker] == "pointwise" and bool(self.alive)

    def _not_before(self, value: fx.Node) -> fx.Node:
        """The same value, that can't be computed before the latest gradient is."""
        # One that stays to the end by choice, so that nothing stays for this.
        outputs, kinds = set(self.what.graph.outputs), self.what.kinds
        ranks = [(name in outputs, kinds[_maker(node)] == "own") for name, node in self.alive.items()]
        nodes = list(self.alive.values())
        element = self._view(nodes[max(range(len(nodes)), key=lambda i: (sum(ranks[i]), i))])
        while element.meta["val"].dim():
            element = self._call(aten.select.int, element, 0, 0)
        return self._call(aten.where.self, self._call(aten.eq.Scalar, element, 0), value, value)

    def _call(self, target: Any, *args: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        fakes: list[Any] = [each.meta["val"] if isinstance(each, fx.Node) else each for each in args]
        mode: Any = next(fake.fake_mode for fake in fakes if hasattr(fake, "fake_mode"))
        with mode:
            node.meta["val"] = target(*fakes)
        return node

    def _copy(self, node: fx.Node, own: dict[fx.Node, fx.Node]) -> fx.Node | None:
        picked = node.all_input_nodes[0] if node.target is operator.getitem else None
        if picked is not None and picked in self.what.stored and picked not in self.values:
            own[node] = self._value(node, own)
            return None
        for argument in node.all_input_nodes:
            self._value(argument, own)
        return self.graph.node_copy(node, lambda each: self._value(each, own))

    def _value(self, node: fx.Node, own: dict[fx.Node, fx.Node]) -> fx.Node:
        if node in own:
            return own[node]
        if node not in self.values:
            if node.op == "get_attr":
                self.values[node] = self.graph.node_copy(node)
            elif self.later and not self._backward(node):
                self.missing.append(node)
                self.values[node] = placeholder = self.graph.placeholder(node.name)
                placeholder.meta = dict(node.meta)
            else:
                raise CaptureError(f"the plan reads {node.name!r} before it makes it")
        return self.values[node]

    def _view(self, node: fx.Node) -> fx.Node:
        """A result: what is there, or a view of that."""
        own: dict[fx.Node, fx.Node] = {}
        for each in _path(node, self.what.stored, self.values):
            copy = self._copy(each, own)
            if copy is not None:
                own[each] = copy
        return self._value(node, own)

    def _backward(self, node: fx.Node) -> bool:
        return node.name in self.what.later


def _maker(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def _path(node: fx.Node, stored: Any, values: Any) -> list[fx.Node]:
    """Views and picks from what is stored to a node, in order."""
    path: list[fx.Node] = []
    while node not in stored and node not in values and node.op == "call_function":
        path.append(node)
        if not node.all_input_nodes:
            break
        node = node.all_input_nodes[0]
    return path[::-1]
