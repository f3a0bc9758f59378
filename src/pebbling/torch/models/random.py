"""Random operations that can be run again: the state of the generator before the first run is kept.

Before every random operation of the forward pass a node is put into the captured graph that takes the
generator's state. A replay sets that state, draws, and sets the present one back, so that whoever
draws next never notices. First runs keep the order of the program, whatever the plan re-orders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...graph import Graph, Node


def take_state(device: str) -> torch.Tensor:
    """State of the device's generator."""
    return _generator(device).get_state()


def draw_again(state: torch.Tensor, device: str, operation: Any, args: Any, kwargs: Any) -> Any:
    """Run a random operation from a state, and leave the generator as it was."""
    generator = _generator(device)
    now = generator.get_state()
    generator.set_state(state)
    try:
        return operation(*args, **kwargs)
    finally:
        generator.set_state(now)


def is_random(node: Any) -> bool:
    """Whether a node of an FX graph draws from the default generator."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    if not hasattr(node.target, "_schema"):
        return True
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    defaults = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    # Attention without dropout draws nothing, and is no more expensive to replay than any operation.
    return not (names and "dropout_p" in names and given.get("dropout_p", defaults["dropout_p"]) == 0.0)


def own_generator(node: Any) -> bool:
    """Whether a random node draws from a generator that the program passes to it."""
    return node.kwargs.get("generator") is not None


def add_states(joint: Any, backward: set[str]) -> dict[str, str]:
    """Put a node that takes the state before every random node of the forward pass; its name, by that node's."""
    states: dict[str, str] = {}
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or not is_random(node) or node.name in backward or own_generator(node):
            continue
        device = device_of(node)
        fake = next(tensor for tensor in torch.utils._pytree.tree_leaves(node.meta["val"]) if tensor is not None)
        with joint.graph.inserting_before(node), fake.fake_mode:
            state = joint.graph.call_function(take_state, (device,))
            state.meta["val"] = torch.empty(_state_bytes(device), dtype=torch.uint8, device="cpu")
        states[node.name] = state.name
    return states


def with_states(graph: Graph, states: Mapping[str, str], random: Collection[str]) -> Graph:
    """The graph in which random nodes read their state, and first runs keep their order.

    ``random`` names all that draw: those without a state are never replayed.
    """
    taken = set(states.values())
    nodes = {node.name: node for node in graph.nodes}
    order: list[Node] = []
    last: tuple[str, ...] = ()
    for node in graph.nodes:
        if node.name in taken:
            continue
        if node.name in states:
            state = nodes[states[node.name]]
            order.append(replace(state, replayable=False, after=last))
            made = (storage.name for storage in state.makes)
            node = replace(node, reads=(*node.reads, *made), workspace=node.workspace + state.bytes)
        elif node.name in random:
            node = replace(node, replayable=False, after=(*node.after, *last))
        if node.name in random:
            last = (node.name,)
        order.append(replace(node, random=node.name in random))
    return Graph(order, graph.inputs, graph.outputs, graph.name)


def device_of(node: Any) -> str:
    """The device that a random node draws on."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(node.meta["val"]) if isinstance(leaf, torch.Tensor)]
    # Attention returns its seed on the host: the largest result tells.
    return str(max(tensors, key=lambda tensor: tensor.numel()).device)


def _state_bytes(device: str) -> int:
    return int(_generator(device).get_state().numel()) if torch.device(device).type != "meta" else 16


def _generator(device: str) -> torch.Generator:
    place = torch.device(device)
    if place.type == "cpu":
        return torch.default_generator
    if place.type == "cuda":
        index = torch.cuda.current_device() if place.index is None else place.index
        torch.cuda.init()  # type: ignore[no-untyped-call]
        return torch.cuda.default_generators[index]
    raise NotImplementedError(f"random numbers on {place.type!r} can't be drawn again: keep to the CPU or CUDA")
