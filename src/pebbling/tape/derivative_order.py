"""What travels along a replay: values and cotangents (first order), or both with their derivatives (second).

Everything else of a replay is the same for both: it moves what these classes make and combine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import rules
from .convert import differentiable
from .foreign import as_list
from .handle import ABSENT, Box
from .ops import Op


class FirstOrder:
    """Values; cotangents on the way back."""

    tangents = False

    def constant(self, value: Any) -> Any:
        """A value from outside the tape."""
        return value

    def boxed(self, box: Box) -> Any:
        """The value of a box."""
        return box.value

    def primal(self, value: Any) -> Any:
        """The plain value."""
        return value

    def doubled(self, value: Any) -> Any:
        """A cotangent that fits a value, for trials."""
        return value + value if differentiable(value) else None

    def forward(
        self, op: Op, single: bool, x: Sequence[Any], statics: dict[str, Any], boxes: Sequence[Box | None]
    ) -> list[Any]:
        """The outputs of an op; ``boxes`` are those of its outputs that have one."""
        return as_list(op.function(*x, **statics))

    def back(
        self, op: Op, single: bool, x: Sequence[Any], y: Sequence[Any], g: Sequence[Any], statics: dict[str, Any]
    ) -> list[Any]:
        """The cotangents of the inputs of an op."""
        return rules.vjp(op, single, x, y, g, statics)

    def add(self, one: Any, two: Any) -> Any:
        """The sum of two cotangents."""
        return two if one is None else one if two is None else one + two


class DualValue(NamedTuple):
    """A value, or a cotangent, and its derivative along the direction; ``None`` is zero."""

    value: Any
    tangent: Any


class SecondOrder:
    """Values with tangents; cotangents with their derivatives."""

    tangents = True

    def __init__(self) -> None:
        self.along: dict[Box, Any] = {}
        """The tangents of boxes."""

    def constant(self, value: Any) -> DualValue:
        return DualValue(value, None)

    def boxed(self, box: Box) -> DualValue:
        return DualValue(box.value, self.along.get(box))

    def primal(self, value: Any) -> Any:
        return value.value

    def doubled(self, value: Any) -> Any:
        if not isinstance(value, DualValue) or not differentiable(value.value):
            return None
        return DualValue(value.value + value.value, value.value - value.value)

    def forward(
        self, op: Op, single: bool, x: Sequence[DualValue], statics: dict[str, Any], boxes: Sequence[Box | None]
    ) -> list[Any]:
        known = [box.value for box in boxes if box is not None and box.value is not ABSENT]
        if len(known) == len(boxes) and all(box in self.along for box in boxes):
            return [self.boxed(box) for box in boxes if box is not None]
        values, dx = [part.value for part in x], [part.tangent for part in x]
        y = known if len(known) == len(boxes) else as_list(op.function(*values, **statics))
        if all(part is None for part in dx):
            dy = [None] * len(y)
        else:
            dy = rules.jvp(op, single, values, y, dx, statics)
        for box, tangent in zip(boxes, dy):
            if box is not None:
                self.along[box] = tangent
        return list(map(DualValue, y, dy))

    def back(
        self,
        op: Op,
        single: bool,
        x: Sequence[DualValue],
        y: Sequence[DualValue],
        g: Sequence[Any],
        statics: dict[str, Any],
    ) -> list[Any]:
        values, dx = [part.value for part in x], [part.tangent for part in x]
        results, dy = [part.value for part in y], [part.tangent for part in y]
        seeds = [None if part is None else part.value for part in g]
        change = [None if part is None else part.tangent for part in g]
        none = [None] * len(x)
        found = none if _zero(seeds) else rules.vjp(op, single, values, results, seeds, statics)
        if _zero(seeds) or _zero(dx):
            # The vjp is linear in the cotangent, so nothing but the vjp itself is needed.
            dot = none if _zero(change) else rules.vjp(op, single, values, results, change, statics)
        else:
            dot = rules.vjp_dot(op, single, values, dx, results, dy, seeds, change, statics)
        return [None if one is None and two is None else DualValue(one, two) for one, two in zip(found, dot)]

    def add(self, one: DualValue | None, two: DualValue | None) -> DualValue | None:
        if one is None or two is None:
            return two if one is None else one
        return DualValue(_sum(one.value, two.value), _sum(one.tangent, two.tangent))


def _zero(parts: Sequence[Any]) -> bool:
    return all(part is None for part in parts)


def _sum(one: Any, two: Any) -> Any:
    return two if one is None else one if two is None else one + two
