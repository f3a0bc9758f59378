"""The gradients of outputs that really came, seen just before the backward pass.

Autograd hands zeros to a captured backward pass in place of gradients that were never computed; what depends on
them is left out, see ``absent``. AOTAutograd also copies gradients that come in another layout than was traced; the
backward pass gets them as they came, see ``tangents``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .absent import without
from .partition import boxed, is_tangent, output_of
from .tangents import may_differ


class Reached:
    """Which gradients came to the outputs of one captured graph."""

    def __init__(self) -> None:
        self._lead: int | None = None
        self._places: list[int | None] = []
        """Of the gradients that the backward pass takes, among those that come."""
        self._layouts: list[bool] = []
        """Whether they may come in other layouts."""
        self._came = threading.local()

    def learn(self, joint: fx.GraphModule, forward_outputs: int) -> None:
        """Note which gradients the backward pass takes."""
        notes = (output_of(joint.graph).meta.get("desc") or ())[:forward_outputs]
        # Tokens, by which effects keep their order, are results of the graph and not of the call.
        results = [note for note in notes if "Token" not in type(note).__name__]
        places = {note: place for place, note in enumerate(results)}
        for node in joint.graph.nodes:
            if is_tangent(node):
                of = getattr(node.meta.get("desc"), "output", None)
                self._places.append(places.get(of))
                self._layouts.append(may_differ(node))
                if of in places and self._lead is None:
                    self._lead = _position(of)

    def watched(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """What was compiled, whose results say which gradients came before their backward pass begins."""
        if self._lead is None or (len(self._places) < 2 and not any(self._layouts)):
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

    def backward(self, module: fx.GraphModule) -> Any:
        """The backward pass, on gradients as they came, and without what depends on those that did not."""
        runs: dict[frozenset[int], Any] = {frozenset(): boxed(module)}

        def call(arguments: list[Any]) -> Any:
            came, self._came.gradients = getattr(self._came, "gradients", None), None
            absent: frozenset[int] = frozenset()
            if came is not None:
                known = [(position, place) for position, place in enumerate(self._places) if place is not None]
                absent = frozenset(position for position, place in known if came[place] is None)
                self._put_back(came, arguments)
                del came
            if absent not in runs:
                tangents = [node for node in module.graph.nodes if is_tangent(node)]
                runs[absent] = boxed(without(module, tangents, [tangents[position] for position in absent]))
            return runs[absent](arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _see(self, gradients: tuple[Any, ...]) -> None:
        self._came.gradients = gradients

    def _put_back(self, came: tuple[Any, ...], arguments: list[Any]) -> None:
        """Put gradients in place of copies in another layout."""
        first = len(arguments) - len(self._places)
        for position, (place, differs) in enumerate(zip(self._places, self._layouts), first):
            gradient, copy = None if place is None else came[place], arguments[position]
            if differs and type(gradient) is torch.Tensor and gradient.stride() != copy.stride():
                arguments[position] = gradient


def _position(note: Any) -> int | None:
    """The output of the program that a note is about, if it leads to the backward pass."""
    return getattr(getattr(note, "base_of", note), "idx", None)
