"""The user's inverse of a step: what it is given, what it costs, and what it does not go together with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..chain.binomial import advances
from ..signature import check_call
from .steps import State


class Inverse:
    """The user's inverse, how far it may be off, and what it costs."""

    def __init__(self, function: Callable[[State, Any], State], drift: float, index: range | None) -> None:
        if not callable(function):
            raise TypeError(f"inverse(state, i) is a function, and inverse is {function!r}")
        check_call(function, "inverse", ("state", "step"))
        if isinstance(drift, bool) or not isinstance(drift, int | float) or not 0 <= drift < 1:
            raise ValueError(f"drift is how far recomputed states may be off, from 0 to less than 1, not {drift!r}")
        self._function, self.drift, self._index = function, float(drift), index
        self.cost = 1.0
        """What the inverse of a step costs, in steps."""

    def __call__(self, state: State, step: int) -> State:
        return self._function(state, step if self._index is None else self._index[step])

    def is_worth_it(self, steps: int, slots: int) -> bool:
        """Whether it costs less than replaying does."""
        return slots < steps and self.cost * (steps - slots) < advances(steps, slots)


def check_inverse(inverse: Any, drift: Any, **others: Any) -> None:
    """Refuse what does not go together with an inverse."""
    if inverse is None:
        if drift:
            raise ValueError("drift= says how far states that inverse= recomputes may be off: give inverse= as well")
        return
    for name, given in others.items():
        if given is not None and given is not False:
            raise ValueError(f"inverse= with {name}= is not possible")
