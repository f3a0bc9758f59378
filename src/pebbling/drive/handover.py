"""From the trial of a budget in bytes to the run: steps that were taken are not taken again, and room that the first
reversal did not need is given to snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ..chain import Action, Online, Revolve, Schedule, Turn
from ..chain.gaps import way_back
from ..tree import nbytes
from .run import Run
from .settle import Chosen
from .shelves import MemoryShelf
from .steps import Adjoint, OwnAdjoint, State
from .tracing import TracedMemory


class Handover:
    """What a trial found, for the run that follows."""

    def __init__(self, own: OwnAdjoint, settled: Chosen, number: int | None) -> None:
        """Let the first steps of a run of ``number`` give what the trial found, and the first reversal be measured."""
        self._allotment = settled.allotment
        self._turn: int | None = None
        self.plan: Schedule | Online = settled.schedule
        """What is followed in the end."""
        if self._allotment is not None:
            self._hand_over(own, number)

    def _hand_over(self, own: OwnAdjoint, number: int | None) -> None:
        allotment = self._allotment
        assert allotment is not None
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
            with TracedMemory() as traced:
                result = turn(state, adjoint, step)
            self._turn = allotment.check_reversal(step + 1 if number is None else number, traced.peak, size)
            return result

        own.advance, own.turn = first_advance, first_turn  # type: ignore[method-assign]

    def better(self, run: Run, actions: Iterator[Action]) -> Iterator[Action]:
        """The actions of the plan; once the first reversal has shown what it takes, those of a plan with all the room.

        A reversal that could be tried has had its room from the start, and a run that may be resumed keeps its plan.
        """
        allotment, plan = self._allotment, self.plan
        if allotment is None or allotment.measured.tried or not isinstance(plan, Revolve | Online):
            yield from actions
            return
        for action in actions:
            yield action
            if type(action) is Turn:
                break
        left = run.number - run.report.reversals
        slots = min(allotment.slots_with(self._turn or 0), left)
        held = sorted((step, slot) for (_, slot), step in run.table.items())
        if left == 0 or slots <= plan.slots or not held or not isinstance(run.shelves[0], MemoryShelf):
            yield from actions
            return
        self.plan = replace(plan, slots=slots)
        used = {slot for _, slot in held}
        spare = list(islice((slot for slot in range(slots + len(held)) if slot not in used), slots - len(held)))
        yield from way_back(held, left, slots, spare)
