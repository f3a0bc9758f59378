"""A plan as two FX graphs: the forward pass with what is kept, the backward pass with what is replayed.

FX runs nodes in the order of the graph and forgets each value after its last use, so the order of the
plan is the order of execution, and what the plan frees is freed where the plan says.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ...graph import GraphPlan, unroll
from ...graph.fx import RunNode
from .replay import replay

States = Mapping[str, fx.Node]


def split(
    plan: GraphPlan, joint: fx.GraphModule, forward_outputs: int, states: Mapping[str, str]
) -> tuple[fx.GraphModule, ...]:
    """The forward and the backward module of a plan, in the calling convention of AOTAutograd.

    The forward module returns the outputs of the model, then what is kept; the backward module takes
    what is kept, then the gradients of the outputs.
    """
    forward_runs, backward_runs = _runs(plan, joint)
    results = results_of(joint)
    nodes = _state_nodes(joint, states)
    placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
    given = [node for node in placeholders if not is_tangent(node)]
    first = _PartitionWriter(joint, given, nodes)
    first.write(forward_runs)
    wanted = results[:forward_outputs]
    gradients = results[forward_outputs:]
    kept = _read_later(backward_runs, gradients, nodes)
    forward = first.finish([*wanted, *kept], forward_outputs)
    tangents = [node for node in placeholders if is_tangent(node)]
    # Numbers come last among the results of the forward pass, and first among the arguments of the backward pass.
    second = _PartitionWriter(joint, [*sorted(kept, key=lambda node: not _number(node)), *tangents], nodes)
    second.write(backward_runs)
    return forward, second.finish(gradients, None)


def straight(plan: GraphPlan, module: fx.GraphModule, states: Mapping[str, str]) -> fx.GraphModule:
    """The module of a plan for a graph without a backward pass."""
    runs, rest = _runs(plan, module)
    given = [node for node in module.graph.nodes if node.op == "placeholder"]
    writer = _PartitionWriter(module, given, _state_nodes(module, states))
    writer.write([*runs, *rest])
    return writer.finish(results_of(module), None)


def boxed(module: fx.GraphModule) -> Any:
    """A function of one list of arguments, which it empties, so that nobody else holds on to them."""
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    arguments = graph.placeholder("arguments")
    nodes = list(module.graph.nodes)
    for position, node in enumerate(node for node in nodes if node.op == "placeholder"):
        values[node] = graph.call_function(operator.getitem, (arguments, position))
    graph.call_method("clear", (arguments,))
    for node in nodes:
        if node.op != "placeholder":
            values[node] = graph.node_copy(node, values.__getitem__)
    run = fx.GraphModule(module, graph).forward

    def call(arguments: list[Any]) -> Any:
        return run(arguments)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """The module with a graph of its own: whoever changes that leaves the other as it is."""
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
        _hand_over(node, values[node], "_dynamo_source")
    copy = fx.GraphModule(module, graph)
    copy.meta = dict(module.meta)
    _hand_over(module, copy, "_param_name_to_source")
    return copy


def _hand_over(original: Any, copy: Any, name: str) -> None:
    """What the tracer notes in attributes: by that, parameters are known, which cost no memory to keep."""
    if hasattr(original, name):
        setattr(copy, name, getattr(original, name))


def is_tangent(node: fx.Node) -> bool:
    """Whether a placeholder is the gradient of an output."""
    return node.op == "placeholder" and "tangents" in str(node.target)


class _PartitionWriter:
    """A graph under construction, and where the values of the joint graph are in it."""

    def __init__(self, joint: fx.GraphModule, given: list[fx.Node], states: States) -> None:
        self.joint, self.states = joint, states
        self.graph = fx.Graph()
        self.values: dict[fx.Node, fx.Node] = {}
        for node in given:
            self.values[node] = placeholder = self.graph.placeholder(node.name)
            placeholder.meta = dict(node.meta)
        for node in joint.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self.graph.node_copy(node, self.values.__getitem__)

    def write(self, runs: list[tuple[fx.Node, bool]]) -> None:
        for node, again in runs:
            if again:
                call = replay(node, self.states)
                args, kwargs = fx.node.map_arg((call.args, call.kwargs), self.values.__getitem__)
                self.values[node] = self.graph.call_function(call.target, args, kwargs)
                self.values[node].meta = dict(node.meta)
            else:
                self.values[node] = self.graph.node_copy(node, self.values.__getitem__)

    def finish(self, results: list[Any], described: int | None) -> fx.GraphModule:
        values = tuple(self.values[node] if isinstance(node, fx.Node) else node for node in results)
        output = self.graph.output(values)
        describe(output, self.joint, described, len(results))
        return fx.GraphModule(self.joint, self.graph)


def _runs(plan: GraphPlan, joint: fx.GraphModule) -> tuple[list[tuple[fx.Node, bool]], list[tuple[fx.Node, bool]]]:
    """FX nodes to run in the two passes, with whether each is a replay."""
    passes: list[list[tuple[fx.Node, bool]]] = [[], []]
    place = 0
    for each in unroll(plan, joint):
        if each is None:
            place = 1
        elif isinstance(each, RunNode) and each.node.op != "get_attr":
            passes[place].append((each.node, each.replay))
    return passes[0], passes[1]


def _read_later(runs: list[tuple[fx.Node, bool]], results: list[Any], states: States) -> list[fx.Node]:
    """Values of the forward pass that the backward pass reads before it makes them itself."""
    made: set[fx.Node] = set()
    read: dict[fx.Node, None] = {}
    for node, again in runs:
        arguments = replay(node, states).reads if again else node.all_input_nodes
        read.update((argument, None) for argument in arguments if argument not in made)
        made.add(node)
    read.update((node, None) for node in results if isinstance(node, fx.Node) and node not in made)
    kept = [node for node in read if not is_tangent(node) and node.op != "get_attr"]
    # AOTAutograd expects those that the program kept past autograd's check of versions to come last, then numbers.
    return sorted(kept, key=lambda node: (_number(node), bool(node.meta.get("saved_tensor_with_no_vc_check", False))))


def _number(node: fx.Node) -> bool:
    """Whether a value is a number that the program took out of a tensor."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _state_nodes(joint: fx.GraphModule, states: Mapping[str, str]) -> States:
    by_name = {node.name: node for node in joint.graph.nodes}
    return {name: by_name[state] for name, state in states.items()}


def output_of(graph: fx.Graph) -> Any:
    """The node that lists the results."""
    return next(node for node in graph.nodes if node.op == "output")


def results_of(joint: fx.GraphModule) -> list[Any]:
    """What a graph returns."""
    return list(output_of(joint.graph).args[0])


def new_values(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Results that are copied over arguments after the forward pass, each with its argument."""
    output = output_of(graph)
    # AOTAutograd notes for every result what it is: for such an argument its new value.
    notes = [getattr(note, "mutated_input", None) for note in output.meta.get("desc") or ()]
    given = {node.meta.get("desc"): node for node in graph.nodes if node.op == "placeholder"}
    return [(result, given[note]) for result, note in zip(output.args[0], notes) if note is not None and note in given]


def overwritten(module: fx.GraphModule) -> list[str]:
    """Names of the arguments that the program changes in place, which happens when the forward pass is over."""
    return [argument.name for _, argument in new_values(module.graph)]


def picks(node: fx.Node) -> bool:
    """Whether a node takes one result of several."""
    return node.target is operator.getitem


def describe(output: fx.Node, joint: fx.GraphModule, forward_outputs: int | None, count: int) -> None:
    """Hand on what AOTAutograd notes about each result."""
    notes = output_of(joint.graph).meta.get("desc")
    if notes is None:
        return
    if forward_outputs is None:
        output.meta["desc"] = list(notes)[-count:] if count else []
    else:
        from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

        saved = [SavedForBackwardsAOTOutput(i) for i in range(count - forward_outputs)]
        output.meta["desc"] = [*list(notes)[:forward_outputs], *saved]
