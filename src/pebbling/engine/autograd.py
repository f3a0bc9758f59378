"""The engine for programs written with HIPS ``autograd.numpy``.

Forward mode, and so second order, works where autograd has a jvp rule; it has none for linear algebra and Fourier
transforms. The node of a loop is put into autograd's graph by hand, because the derivative that runs outside has to
see it as one node while the values of other derivatives go through it as they are. Autograd's tape does not show a
node what its inputs were given already: where an argument of a loop is used after it too, the two sums are added up
each for itself, and the gradient can differ in its last bit from that of the loop written out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from .framework import Unwritten
from .numpy.step import differentiable as _plain_differentiable
from .numpy.tape import is_own
from .protocol import Custom, Engine, Leaf, Pullback, Step

try:
    from autograd.core import JVPNode, VJPNode, add_outgrads, vspace  # type: ignore[import-untyped]
    from autograd.tracer import getval, isbox, new_box, trace_stack  # type: ignore[import-untyped]
    from autograd.util import toposort  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError("this engine needs autograd: pip install 'pebbling[autograd]'") from error


def active(leaf: Any) -> bool:
    """Whether a derivative is being taken through this leaf."""
    return bool(isbox(leaf))


def differentiable(leaf: Any) -> bool:
    """Whether a derivative could be taken through it."""
    while isbox(leaf):
        leaf = getval(leaf)
    return _plain_differentiable(leaf)


def step_vjp(step: Step, inputs: Sequence[Any], wrt: Sequence[bool] | None = None) -> tuple[list[Any], Pullback]:
    """Run one step with autograd's tape; its outputs, and the way back."""
    chosen = [i for i, leaf in enumerate(inputs) if (wrt is None or wrt[i]) and differentiable(leaf)]
    roots = [VJPNode.new_root() for _ in chosen]
    outputs, nodes = _traced(step, inputs, dict(zip(chosen, roots)))
    ends: list[Any] = nodes

    def pullback(cotangents: list[Any], into: list[Any]) -> None:
        if not ends:
            raise RuntimeError("this pullback has been used, and its tape is freed: run the step again")
        sums: dict[Any, Any] = {}
        for i, root in zip(chosen, roots):
            if into[i] is not None:
                own = is_own(into, i)
                sums[root], into[i] = (into[i], own), None
        for node, cotangent in zip(ends, cotangents):
            if node is not None and cotangent is not None:
                sums[node] = add_outgrads(sums.get(node), cotangent)
        last = _node([node for node in ends if node is not None], lambda g: ())
        cotangents.clear()
        ends.clear()
        _walk_back(last, sums, set(roots))
        for i, root in zip(chosen, roots):
            into[i] = sums[root][0] if root in sums else None

    return outputs, pullback


def _walk_back(last: Any, sums: dict[Any, Any], roots: set[Any]) -> None:
    for node in toposort(last):
        if node in roots or node not in sums:
            continue
        for parent, part in zip(node.parents, node.vjp(sums.pop(node)[0])):
            sums[parent] = add_outgrads(sums.get(parent), part)


def step_jvp(step: Step, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Run one step with tangents; its outputs and theirs."""
    roots = {i: JVPNode.new_root(t) for i, t in enumerate(tangents) if t is not None}
    outputs, nodes = _traced(step, inputs, roots)
    return outputs, [None if node is None else node.g for node in nodes]


def custom(call: Custom, inputs: Sequence[Any]) -> list[Any]:
    """Run ``call`` as one node of the innermost derivative."""
    level = max((leaf._trace for leaf in inputs if isbox(leaf)), default=None)
    if level is None:
        return list(call.run(list(inputs))[0])
    nodes = [leaf._node if isbox(leaf) and leaf._trace == level else None for leaf in inputs]
    values = [leaf if node is None else leaf._value for leaf, node in zip(inputs, nodes)]
    if any(isinstance(node, JVPNode) for node in nodes):
        outputs, pushed = call.jvp(values, [None if node is None else node.g for node in nodes])
        return [out if t is None else new_box(out, level, JVPNode.new_root(t)) for out, t in zip(outputs, pushed)]
    outputs, residue = call.run(values)
    parents = [node for node in nodes if node is not None]

    def vjp(parts: Any) -> list[Any]:
        back: list[Any] = [None] * len(values)
        call.vjp(residue, list(parts), back)
        pairs = [(value, part) for value, node, part in zip(values, nodes, back) if node is not None]
        return [vspace(value).zeros() if part is None else part for value, part in pairs]

    whole = _node(parents, vjp)
    return [
        new_box(out, level, _node([whole], _one_of(outputs, i))) if differentiable(out) else out
        for i, out in enumerate(outputs)
    ]


def _one_of(outputs: Sequence[Any], i: int) -> Callable[[Any], list[Any]]:
    # The whole takes one cotangent an output, and autograd adds such tuples up element by element.
    spaces = [vspace(out) if differentiable(out) else None for out in outputs]

    def vjp(g: Any) -> list[Any]:
        return [tuple([g if j == i else 0.0 if space is None else space.zeros() for j, space in enumerate(spaces)])]

    return vjp


def _node(parents: list[Any], vjp: Callable[[Any], Sequence[Any]]) -> Any:
    node = VJPNode.__new__(VJPNode)
    node.parents, node.vjp = parents, vjp
    return node


def _traced(step: Step, inputs: Sequence[Any], roots: dict[int, Any]) -> tuple[list[Any], list[Any]]:
    """The outputs of a step whose inputs start at ``roots``, and the nodes they end at."""
    with trace_stack.new_trace() as level:
        given = [new_box(leaf, level, roots[i]) if i in roots else leaf for i, leaf in enumerate(inputs)]
        outputs = list(step(given))
    nodes = [out._node if isbox(out) and out._trace == level else None for out in outputs]
    return [out if node is None else out._value for out, node in zip(outputs, nodes)], nodes


class AutogradFramework(Unwritten):
    """What loops ask of autograd's boxes, into which nobody can write."""

    engine = cast(Engine, sys.modules[__name__])
    execute = None
    compiled = None

    def level(self, leaf: Leaf) -> int:
        return leaf._trace + 1 if isbox(leaf) else 0

    def plain(self, leaf: Leaf) -> Any:
        while isbox(leaf):
            leaf = leaf._value
        return leaf

    def share(self, leaf: Leaf) -> Leaf:
        return leaf

    def enter(self, leaf: Leaf, of_state: bool) -> Leaf:
        return leaf

    def idle(self) -> bool:
        return False
