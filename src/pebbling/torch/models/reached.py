"""Outputs that no gradient came for: arguments that only they depend on get none either, as in eager mode.

Autograd hands zeros to a captured backward pass in place of gradients that were never computed, and zeros
would come out for the parameters of a head that the loss left out. To an optimizer zero is not the same as
nothing: it decays weights and moves averages. Whether a gradient came is seen just before the backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import fx


class Reached:
    """Which gradients came to the outputs of one captured graph, and which arguments they reach."""

    def __init__(self) -> None:
        self._reads: list[frozenset[int]] = []
        self._lead: int | None = None
        self._came = threading.local()

    def learn(self, joint: fx.GraphModule, forward_outputs: int) -> None:
        """Note which outputs' gradients each gradient of an argument is computed from."""
        output = next(node for node in joint.graph.nodes if node.op == "output")
        places = {note: place for place, note in enumerate((output.meta.get("desc") or ())[:forward_outputs])}
        reads: dict[fx.Node, frozenset[int]] = {}
        for node in joint.graph.nodes:
            of = getattr(node.meta.get("desc"), "output", None)
            if node.op == "placeholder" and of in places:
                reads[node] = frozenset((places[of],))
                self._lead = _position(of) if self._lead is None else self._lead
            elif node.op != "output":
                reads[node] = frozenset().union(*(reads[argument] for argument in node.all_input_nodes))
        results = output.args[0][forward_outputs:]
        self._reads = [reads[result] if isinstance(result, fx.Node) else frozenset() for result in results]

    def watched(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """What was compiled, whose results say which gradients came before their backward pass begins."""
        if self._lead is None or len(frozenset(self._reads) - {frozenset()}) < 2:
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
        """The backward pass, without gradients of what none came for."""

        def call(arguments: list[Any]) -> Any:
            came, self._came.places = getattr(self._came, "places", None), None
            results = run(arguments)
            if came is None or len(results) != len(self._reads):
                return results
            return [None if reads and not reads & came else each for each, reads in zip(results, self._reads)]

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _see(self, gradients: tuple[Any, ...]) -> None:
        came = frozenset(place for place, gradient in enumerate(gradients) if gradient is not None)
        self._came.places = None if len(came) == len(gradients) else came


def _position(note: Any) -> int | None:
    """The output of the program that a note is about, if it leads to the backward pass."""
    return getattr(getattr(note, "base_of", note), "idx", None)
