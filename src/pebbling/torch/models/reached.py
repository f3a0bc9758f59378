"""The gradients of outputs that really came, seen just before the backward pass.

Autograd hands zeros to a captured backward pass in place of gradients that were never computed, and zeros
would come out for the parameters of a head that the loss left out. To an optimizer zero is not the same as
nothing: it decays weights and moves averages. So arguments that only such outputs depend on get none, as in
eager mode. AOTAutograd also copies gradients that come in another layout than was traced; the backward pass gets
them as they came, see ``tangents``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .partition import is_tangent
from .tangents import may_differ


class Reached:
    """Which gradients came to the outputs of one captured graph, and which arguments they reach."""

    def __init__(self) -> None:
        self._reads: list[frozenset[int]] = []
        self._lead: int | None = None
        self._tangents: list[int | None] = []
        self._came = threading.local()

    def learn(self, joint: fx.GraphModule, forward_outputs: int) -> None:
        """Note which outputs' gradients each gradient of an argument is computed from."""
        output = next(node for node in joint.graph.nodes if node.op == "output")
        notes = (output.meta.get("desc") or ())[:forward_outputs]
        # Tokens, by which effects keep their order, are results of the graph and not of the call.
        results = [note for note in notes if "Token" not in type(note).__name__]
        places = {note: place for place, note in enumerate(results)}
        reads: dict[fx.Node, frozenset[int]] = {}
        for node in joint.graph.nodes:
            of = getattr(node.meta.get("desc"), "output", None)
            if is_tangent(node):
                self._tangents.append(places.get(of) if may_differ(node) else None)
            if node.op == "placeholder" and of in places:
                reads[node] = frozenset((places[of],))
                self._lead = _position(of) if self._lead is None else self._lead
            elif node.op != "output":
                reads[node] = frozenset().union(*(reads[argument] for argument in node.all_input_nodes))
        gradients = output.args[0][forward_outputs:]
        self._reads = [reads[each] if isinstance(each, fx.Node) else frozenset() for each in gradients]

    def watched(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """What was compiled, whose results say which gradients came before their backward pass begins."""
        heads = len(frozenset(self._reads) - {frozenset()})
        if self._lead is None or (heads < 2 and all(place is None for place in self._tangents)):
            return run
        lead = self._lead

        def call(*args: Any) -> Any:
            results = run(*args)
            node = results[lead].grad_fn if isinstance(results[lead], torch.Tensor) else None
            while node is not None and not hasattr(node, "_forward_cls"):
                node = node.next_functions[0][0] if node.next_functions else None
            if node is not None:
                node.register_prehook(self._see)
            return results

        call.__dict__.update(getattr(run, "__dict__", {}))
        return call

    def backward(self, run: Callable[[list[Any]], Any]) -> Any:
        """The backward pass, on gradients as they came, and without those of what none came for."""

        def call(arguments: list[Any]) -> Any:
            came, self._came.gradients = getattr(self._came, "gradients", None), None
            if came is None:
                return run(arguments)
            places = frozenset(place for place, gradient in enumerate(came) if gradient is not None)
            whole = len(places) == len(came)
            self._put_back(came, arguments)
            del came
            results = run(arguments)
            if whole or len(results) != len(self._reads):
                return results
            return [None if reads and not reads & places else each for each, reads in zip(results, self._reads)]

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _see(self, gradients: tuple[Any, ...]) -> None:
        self._came.gradients = gradients

    def _put_back(self, came: tuple[Any, ...], arguments: list[Any]) -> None:
        """Put gradients in place of copies in another layout."""
        first = len(arguments) - len(self._tangents)
        for position, place in enumerate(self._tangents, first):
            gradient, copy = None if place is None else came[place], arguments[position]
            if type(gradient) is torch.Tensor and gradient.stride() != copy.stride():
                arguments[position] = gradient


def _position(note: Any) -> int | None:
    """The output of the program that a note is about, if it leads to the backward pass."""
    return getattr(getattr(note, "base_of", note), "idx", None)
