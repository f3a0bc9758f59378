"""What a driver runs: two functions of one step, whatever computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

State = Any
Adjoint = Any


class Steps(Protocol):
    """A chain of steps, counted from 0 however the user counts them."""

    def advance(self, state: State, step: int) -> State:
        """The state after ``step``."""

    def turn(self, state: State, adjoint: Adjoint, step: int) -> Adjoint:
        """The adjoint before ``step``, from the state before it and the adjoint after it."""


class OwnAdjoint:
    """Steps by the user's own forward and adjoint code; the tape of a step is the state before it."""

    def __init__(
        self,
        advance: Callable[[State, Any], State],
        reverse: Callable[[State, Adjoint, Any], Adjoint],
        index: range | None,
    ) -> None:
        """``index`` holds what the user's functions are told of each step; ``None`` is 0, 1, 2 …"""
        self._advance, self.reverse, self._index = advance, reverse, index
        if index is None or index == range(len(index)):
            self.advance = advance  # type: ignore[method-assign,assignment]
            self.turn = reverse  # type: ignore[method-assign,assignment]

    def advance(self, state: State, step: int) -> State:
        return self._advance(state, self._index[step])  # type: ignore[index]

    def turn(self, state: State, adjoint: Adjoint, step: int) -> Adjoint:
        return self.reverse(state, adjoint, self._index[step])  # type: ignore[index]
