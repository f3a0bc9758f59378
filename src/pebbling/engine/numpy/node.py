"""One node with its own derivatives: how a whole checkpointed loop stands on a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from ..protocol import Custom
from .blank import Under
from .dual import Dual
from .pulls import pull_item
from .tape import accumulate, fit, meta
from .traced import highest, unblank
from .var import Var


def custom(call: Custom, inputs: Sequence[Any]) -> list[Any]:
    """Run ``call`` so that the innermost derivative uses its rules. Values of outer ones go through it as they are."""
    top = highest(inputs)
    if top is None:
        return list(call.run(list(unblank(inputs)))[0])
    inputs = unblank(inputs)
    values = [top.peel(leaf) for leaf in inputs]
    if isinstance(top, Dual):
        tangents = [leaf.tangent if value is not leaf else None for leaf, value in zip(inputs, values)]
        with Under(highest(values)):
            outputs, pushed = call.jvp(values, tangents)
        return [out if t is None else Dual(out, t, top.level) for out, t in zip(outputs, pushed)]
    assert isinstance(top, Var)
    tape = top.tape
    sources = [(leaf.index, *meta(value)) if value is not leaf else None for leaf, value in zip(inputs, values)]
    below = highest(values)
    if below is not None:  # the loop may write into arrays what that derivative follows
        values = [
            below.constant(value) if source is not None and type(value) is ndarray else value
            for value, source in zip(values, sources)
        ]
    with Under(below):
        outputs, residue = call.run(values)
    tape.append((_pull_custom, call, residue, sources))
    node = len(tape) - 1
    results = []
    for position, out in enumerate(outputs):
        if meta(out)[1].kind in "fc":
            tape.append((pull_item, node, position, len(outputs)))
            out = Var(out, tape, len(tape) - 1)
        results.append(out)
    return results


def _pull_custom(grads: list[Any], entry: Any) -> None:
    _, call, residue, sources = entry
    into: list[Any] = []
    for source in sources:
        into.append(None if source is None else grads[source[0]])
        if source is not None:
            grads[source[0]] = None  # the list that is passed on has it alone, and can add to it in place
    call.vjp(residue, grads[-1], into)
    if len(into) != len(sources):
        raise ValueError(f"the vjp of {call!r} left {len(into)} cotangents for {len(sources)} inputs")
    for position in reversed(range(len(sources))):
        source, part = sources[position], into.pop()
        if source is None or part is None:
            continue
        i, shape, dtype = source
        if meta(part)[0] != shape:
            raise ValueError(
                f"the vjp of {call!r} gave a cotangent of shape {meta(part)[0]} for input {position}, "
                f"which has shape {shape}"
            )
        accumulate(grads, i, fit(part, shape, dtype))
