"""From a budget in bytes to a plan for own adjoint code, by measuring the first step.

A run holds, besides its snapshots: the final state, the state at hand, and the adjoint. The rest of
the budget is room for whatever runs at the moment: a step (its result and what it allocates on the
way) or a reversal (likewise). The first step is run with Python's memory tracing, and its result is
used. A reversal can't be tried before its turn (it may accumulate into the user's arrays), so it is
given room for its result and for the larger of eight states and twice what the step allocates, and
one more state for every eight snapshots; if the first reversal takes more than that, the run stops
with a ``BudgetError`` that knows the smallest budget with room enough.

Python's own objects count: what it takes to keep track of each snapshot, in memory and in a store,
the digests of states that are to be compared, and the plan. What a store takes is measured with the
first state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NoReturn

from ..errors import BudgetError
from ..tree import flatten, kind_of, nbytes
from ..tree.leaves import OTHER, is_generator
from ..units import format_bytes
from .holdings import Holdings
from .steps import State, Steps
from .tracing import Traced

BOOKKEEPING = 64 * 1024  # the run's own objects: stream, tables, report
_SNAPSHOT, _LEAF = 1000, 500  # what a snapshot takes besides its bytes (in the stream of actions too), and each leaf
_OBJECT = 4  # what an object that is not an array takes, in sizes of its pickle
_FREE_LISTS = 256 * 1024  # tuples that copying such objects leaves in Python's free lists
_SHARE = 8
_JITTER = 8 * 1024  # what two trials of the same step may differ by: Python's own objects and caches


@dataclass
class Measured:
    """What the first step showed, in bytes and seconds."""

    state: int
    leaves: int
    workspace: int
    adjoint: int
    seconds: float
    copied: bool = False
    """Whether the state holds objects that only ``copy.deepcopy`` can copy."""
    taken: list[State] = field(default_factory=list)
    """The states after the steps that were run, to be used by the run that follows."""

    @property
    def snapshot(self) -> int:
        """What one snapshot takes."""
        return self.state + _SNAPSHOT + _LEAF * self.leaves

    @property
    def room(self) -> int:
        """What is set aside for a reversal at the least."""
        return self.adjoint + max(8 * self.state, 2 * self.workspace + self.state) + _JITTER


@dataclass(frozen=True)
class Allotment:
    """A budget in bytes, and how it is divided; ``besides`` is what the run holds besides its snapshots."""

    budget: int
    measured: Measured
    besides: int
    least: int

    @property
    def slots(self) -> int:
        """The most snapshots that fit, or a ``BudgetError``."""
        if not self.fits(self.least):
            refuse(self.budget, self.minimum(self.least), self.measured)
        snapshot, extra = self.measured.snapshot, self.measured.state
        slots = _SHARE * (self.budget - self.needed(0)) // (_SHARE * snapshot + extra)
        while self.fits(slots + 1):
            slots += 1
        return slots

    def needed(self, slots: int) -> int:
        """The bytes that a run with so many snapshots needs."""
        measured = self.measured
        return self.besides + slots * measured.snapshot + measured.room + slots // _SHARE * measured.state

    def fits(self, slots: int) -> bool:
        """Whether there is room for so many snapshots."""
        return self.needed(slots) <= self.budget

    def minimum(self, slots: int) -> int:
        """A budget with which a run with so many snapshots succeeds, whatever another trial of the step shows."""
        return self.needed(slots) + _JITTER

    def check_reversal(self, number: int, taken: int, adjoint: int) -> None:
        """Hold what the first reversal of ``number`` allocated against the room that it had."""
        measured, slots = self.measured, min(self.slots, number)
        taken += adjoint - measured.adjoint
        if taken <= self.budget - self.besides - slots * measured.snapshot:
            return
        extra = -(-(taken - measured.room) // max(measured.state, 1))
        enough = min(max(self.least, _SHARE * extra - 1), number)
        minimum = self.besides + enough * measured.snapshot + taken + _JITTER
        raise BudgetError(
            f"a reversal allocates {format_bytes(taken)}, for which a budget of {self.budget} bytes "
            f"({format_bytes(self.budget)}) leaves no room: the smallest budget is {minimum} bytes "
            f"({format_bytes(minimum)})",
            minimum=minimum,
        )


def measure(steps: Steps, state: State, seed: Any, timed: bool) -> Measured:
    """Run step 0 and see what it takes; if the time matters, run step 1 as well, without tracing."""
    begun = perf_counter()
    with Traced() as traced:
        after = steps.advance(state, 0)
    seconds, taken = perf_counter() - begun, [after]
    if timed:
        with Holdings() as holdings:
            # The state after step 0 is still to be used: its objects must not change.
            held = holdings.state(holdings.hold(after))
            begun = perf_counter()
            taken.append(steps.advance(held, 1))
            seconds = perf_counter() - begun
    size = max(_size(state), _size(after))
    return Measured(
        state=size,
        leaves=len(flatten(after)[0]),
        workspace=max(0, traced.peak - nbytes(after)),
        adjoint=size if callable(seed) else _size(seed),
        seconds=seconds,
        copied=any(kind_of(leaf) is OTHER and not is_generator(leaf) for leaf in flatten(after)[0]),
        taken=taken,
    )


def allot(budget: int, measured: Measured, least: int = 1, states: int = 0, nbytes: int = 0) -> Allotment:
    """Divide a budget; ``states`` and ``nbytes`` are held besides what every run holds."""
    besides = BOOKKEEPING + (2 + states) * measured.snapshot + measured.adjoint + nbytes
    return Allotment(budget, measured, besides + _FREE_LISTS * measured.copied, least)


def _size(tree: Any) -> int:
    """Bytes that a tree takes in memory."""
    return sum(kind_of(leaf).nbytes(leaf) * (_OBJECT if kind_of(leaf) is OTHER else 1) for leaf in flatten(tree)[0])


def refuse_untraced(state: State) -> None:
    """Refuse arrays whose memory Python can't trace: a budget that is not measured would be a guess."""
    for leaf in flatten(state)[0]:
        if kind_of(leaf).name in ("torch", "jax"):
            raise ValueError(
                f"memory= bounds what NumPy and Python allocate, and the state holds a {kind_of(leaf).name} array, "
                "whose memory can't be measured here: give slots= instead"
            )


def refuse(budget: int, minimum: int, measured: Measured) -> NoReturn:
    """Say that the budget is too small, and which one is not."""
    raise BudgetError(
        f"{budget} bytes ({format_bytes(budget)}) are too few for states of {format_bytes(measured.state)} and a step "
        f"that allocates {format_bytes(measured.workspace)} besides: the smallest budget is {minimum} bytes "
        f"({format_bytes(minimum)})",
        minimum=minimum,
    )
