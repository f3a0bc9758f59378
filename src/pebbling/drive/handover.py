"""From the trial of a budget in bytes to the run: steps that were taken are not taken again."""

from __future__ import annotations

from ..tree import nbytes
from .settle import Settled
from .steps import Adjoint, OwnAdjoint, State
from .tracing import Traced


def hand_over(own: OwnAdjoint, settled: Settled, number: int | None) -> None:
    """Let the first steps of a run of ``number`` give what the trial found, and the first reversal be measured."""
    allotment = settled.allotment
    if allotment is None:
        return
    advance, turn, taken = own.advance, own.turn, allotment.measured.taken[::-1]
    allotment.measured.taken.clear()

    def first_advance(state: State, step: int) -> State:
        if not taken:
            return advance(state, step)
        if len(taken) == 1:
            own.advance = advance  # type: ignore[method-assign]
        return taken.pop()

    def first_turn(state: State, adjoint: Adjoint, step: int) -> Adjoint:
        own.turn = turn  # type: ignore[method-assign]
        size = nbytes(adjoint)
        with Traced() as traced:
            result = turn(state, adjoint, step)
        allotment.check_reversal(step + 1 if number is None else number, traced.peak, size)
        return result

    own.advance, own.turn = first_advance, first_turn  # type: ignore[method-assign]
