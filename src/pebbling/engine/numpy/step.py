"""One step of a loop under a derivative: with a tape, with tangents, and with both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from ...errors import SourceError
from ...refusal import Region
from ...tree.reach import arrays_near
from ..protocol import Step
from .blank import Under, under_level, under_tape
from .dual import Dual
from .hold import READ_ONLY, release
from .refuse import shown
from .standins import Tracing
from .tape import StepTape, accumulate, next_level, walk_back
from .traced import Traced, plain, unblank
from .var import Var

_KINDS = (np.ndarray, np.memmap)


def active(value: Any) -> bool:
    """Whether a derivative is being taken through this value."""
    return isinstance(value, Traced) and not value.blank


def differentiable(value: Any) -> bool:
    """Whether a derivative could be taken through it: floating point or complex, an array or a number."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "fc"
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fc" and type(value) in _KINDS
    return isinstance(value, float | complex | np.floating | np.complexfloating)


class TapedStep:
    """The way back over one taped run, which can be gone once."""

    __slots__ = ("places", "sources", "tape")

    def __init__(self, tape: StepTape, sources: list[int], places: list[int | None]) -> None:
        self.tape: StepTape | None = tape
        self.sources, self.places = sources, places

    def __call__(self, cotangents: list[Any], into: list[Any]) -> None:
        if self.tape is None:
            raise RuntimeError("this pullback has been used, and its tape is freed: run the step again")
        tape, self.tape = self.tape, None
        grads = [None] * len(tape)
        for k, i in enumerate(self.sources):
            grads[k], into[i] = into[i], None
        for place in reversed(self.places):
            cotangent = cotangents.pop()
            if place is not None and cotangent is not None:
                accumulate(grads, place, cotangent)
            cotangent = None
        walk_back(tape, grads)
        for i in reversed(self.sources):
            into[i] = grads.pop()


def step_vjp(step: Step, inputs: Sequence[Any], wrt: Sequence[bool] | None = None) -> tuple[list[Any], TapedStep]:
    """Run one step with a tape; its outputs, and the way back."""
    tape = StepTape()
    return run_taped(tape, step, inputs, wrt)


def run_taped(
    tape: StepTape, step: Step, inputs: Sequence[Any], wrt: Sequence[bool] | None = None, watch: bool = False
) -> tuple[list[Any], TapedStep]:
    """``step_vjp`` on a given tape; with ``watch``, the step may catch what NumPy says of locked arrays."""
    sources: list[int] = []
    given = list(unblank(inputs))
    for i in range(len(given)):  # no name for a value, which would keep it alive while the step runs
        if (wrt is None or wrt[i]) and differentiable(given[i]):
            given[i] = Var(given[i], tape, len(sources))
            tape.append(None)
            sources.append(i)
    tape.leaves = len(sources)
    try:
        outputs = _run(step, given, watch, under_tape(tape), tape.held)
    except BaseException:
        release(tape.held)  # the traceback keeps the tape alive, and the user should not find arrays locked
        raise
    del given
    places: list[int | None] = []
    for i, out in enumerate(outputs):
        if type(out) is Var and out.tape is tape:
            places.append(out.index)
            outputs[i] = out.value
        else:
            places.append(None)
            if isinstance(out, Traced) and out.blank:
                outputs[i] = out.value
    return outputs, TapedStep(tape, sources, places)


def step_jvp(step: Step, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Run one step with tangents; its outputs and theirs."""
    return run_dual(step, inputs, tangents)


def run_dual(
    step: Step, inputs: Sequence[Any], tangents: Sequence[Any], watch: bool = False
) -> tuple[list[Any], list[Any]]:
    """``step_jvp``; with ``watch``, the step may catch what NumPy says of locked arrays."""
    level = next_level()
    inputs = unblank(inputs)
    _check_tangents(inputs, tangents)
    given = [Dual(x, _strong(t), level) if differentiable(x) else x for x, t in zip(inputs, tangents)]
    return _split(list(unblank(_run(step, given, watch, under_level(level)))), level)


def written(held: Collection[int], error: ValueError, frame: FrameType) -> Exception | None:
    """What to say of a write into an array that NumPy finds locked: ``None`` if it is not one of those ``held``."""
    for near in arrays_near(frame):
        if any(key in held for key in near):
            return SourceError(f"{shown(frame)}{error}. {READ_ONLY}")
    return None


def _run(step: Step, given: list[Any], watch: bool, under: Under, held: Collection[int] = ()) -> list[Any]:
    with Tracing(), Region(partial(written, held), watch), under:
        return list(step(given))


def step_vjp_dot(
    step: Step,
    inputs: Sequence[Any],
    tangents: Sequence[Any],
    cotangents: Sequence[Any],
    cotangent_tangents: Sequence[Any],
    into: list[Any],
    into_tangents: list[Any],
) -> tuple[list[Any], list[Any]]:
    """The pullback of one step and its derivative along ``tangents``: a tape of dual numbers."""
    level = next_level()
    _check_tangents(inputs, tangents)
    outputs, pullback = step_vjp(step, _join(inputs, tangents, level))
    sums: list[Any] = []
    for i in range(len(into)):
        value, into[i] = into[i], None
        tangent, into_tangents[i] = into_tangents[i], None
        sums.append(_dual(value, tangent, level))
        value = tangent = None
    pullback(_join(cotangents, cotangent_tangents, level), sums)
    into[:], into_tangents[:] = _split(sums, level)
    return _split(outputs, level)


def _check_tangents(inputs: Sequence[Any], tangents: Sequence[Any]) -> None:
    for i, (value, tangent) in enumerate(zip(inputs, tangents, strict=True)):
        if tangent is not None and not differentiable(value):
            raise TypeError(f"input {i} has a tangent, but is {type(value).__name__}, which has no derivative")


def _strong(tangent: Any) -> Any:
    return np.asarray(tangent)[()] if type(tangent) in (int, float, complex) else tangent


def _dual(value: Any, tangent: Any, level: int) -> Any:
    if tangent is None:
        return value
    tangent = _strong(tangent)
    return Dual(np.zeros(tangent.shape, tangent.dtype) if value is None else value, tangent, level)


def _join(values: Sequence[Any], tangents: Sequence[Any], level: int) -> list[Any]:
    return [_dual(value, tangent, level) for value, tangent in zip(values, tangents)]


def _split(leaves: list[Any], level: int) -> tuple[list[Any], list[Any]]:
    """Values and tangents; the list is emptied."""
    values, tangents = [], []
    for leaf in leaves:
        at_level = type(leaf) is Dual and leaf.level == level
        values.append(leaf.value if at_level else leaf)
        tangents.append(leaf.tangent if at_level else None)
    leaves.clear()
    return values, tangents
