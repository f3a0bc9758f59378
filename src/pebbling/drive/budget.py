"""From a budget in bytes to a plan for own adjoint code, by measuring the first steps.

A run holds, besides its snapshots: the final state, the state at hand, and the adjoint. The rest of the budget is
room for whatever runs at the moment: a step (its result and what it allocates on the way) or a reversal (likewise).
The first two steps are run with Python's memory tracing, and their results are used. A reversal is tried where it
can be seen that it leaves nothing behind (``trial.py``). Where it can't, it is given room for its result and for the
larger of eight states and twice what the step allocates, and one more state for every eight snapshots, until the
first reversal has shown what it takes: then the rest of the way back is planned again. If the first reversal takes
more than its room, the run stops with a ``BudgetError`` that knows the smallest budget with room enough.

The snapshot of the initial state takes nothing, since the caller holds that state. Python's own objects count: what
it takes to keep track of each snapshot, in memory and in a store (``ledger.py``), the digests of states that are to
be compared, and the plan. What a store takes is measured with the first state. Steps that need more than the first
two, and what other threads allocate meanwhile, can exceed the budget by as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NoReturn

from ..budget import JITTER, too_few
from ..chain.binomial import advances
from ..errors import BudgetError
from ..tree import copy, flatten, kind_of, nbytes
from ..tree.leaves import OTHER, is_generator
from ..units import format_bytes
from .holdings import Holdings
from .ledger import own_size, planned, tracked
from .steps import OwnAdjoint, State
from .tracing import TracedMemory
from .trial import tried
from .verify import digests

BOOKKEEPING = 16 * 1024  # the run's own objects: stream, tables, report
_LEAF = 200  # and for each leaf of a state
LEAST = 30 * 1024  # and what comes and goes before the first snapshot is held
_FREE_LISTS = 256 * 1024  # tuples that copying objects leaves in Python's free lists
_GROWN = 112 * 1024  # and what steps leave there at the most, step by step
_MANY = 1000  # steps of a loop of unknown length
_NOTICED, _UNSURE = 128, 96  # bytes that a step must leave for it to be seen, and by how much that differs
_SHARE, _SHARE_UNTRIED = 64, 8  # snapshots for which there is room for a state to spare: reversals differ


@dataclass
class FirstSteps:
    """What the first steps showed, in bytes and seconds."""

    state: int
    """What the result of a step takes."""
    held: int
    """What a snapshot of it takes besides."""
    leaves: int
    advance: int
    """The most that a step has at once, its result included."""
    turn: int
    """The same of a reversal; a guess unless one was ``tried``."""
    tried: bool
    adjoint: int
    seed: int
    """The most that a function has at once that gives the adjoint of the final state."""
    digest: int
    first: int
    """What holding the initial state takes: nothing, unless it must be copied."""
    lasting: int
    """What the first step leaves behind, such as modules that it imports."""
    grown: int
    """What every step leaves behind, in Python's free lists."""
    seconds: float
    copied: bool = False
    """Whether the state holds objects that only ``copy.deepcopy`` can copy."""
    taken: list[State] = field(default_factory=list)
    """The states after the steps that were run, to be used by the run that follows."""

    @property
    def snapshot(self) -> int:
        """What one snapshot takes."""
        return self.state + self.held

    @property
    def workspace(self) -> int:
        """What a step allocates besides its result."""
        return max(0, self.advance - self.state)

    def working(self, turn: int) -> int:
        """What a run holds besides its snapshots while a step or a reversal runs, states and adjoint included."""
        busy = max(self.advance, turn, self.state + self.digest, self.seed)
        return 2 * self.snapshot + self.adjoint + busy


@dataclass(frozen=True)
class Allotment:
    """A budget in bytes, and how it is divided; ``besides`` is what the run holds besides its snapshots.

    ``each`` is what a snapshot takes besides its state; ``least`` is the fewest slots, 0 with a store beside memory;
    ``number`` is how many steps there are, or ``None``.
    """

    budget: int
    measured: FirstSteps
    besides: int
    least: int
    each: int = 0
    number: int | None = None

    @property
    def slots(self) -> int:
        """The most snapshots that fit, or a ``BudgetError``."""
        if not self.fits(self.fewest):
            refuse(self.budget, self.minimum(self.fewest), self.measured)
        return self._most(self.needed)

    @property
    def fewest(self) -> int:
        """The slots with which a run takes the least; with fewer, more replays may leave more behind."""
        if not self.measured.grown or self.number is None:
            return self.least
        return min(range(self.least, min(self.number, self.least + 16) + 1), key=self.needed)

    def slots_with(self, turn: int) -> int:
        """The most that fit where a reversal is known to take ``turn``."""
        return self._most(lambda slots: self.taken(slots, turn) + JITTER)

    def _most(self, needed: Callable[[int], int]) -> int:
        low = self.fewest
        high = low + self.budget // max(1, self.measured.snapshot) + 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if needed(middle) <= self.budget else (low, middle - 1)
        return low

    def taken(self, slots: int, turn: int) -> int:
        """The bytes that a run with so many snapshots takes."""
        measured = self.measured
        # Who called holds the initial state, which is the first snapshot but where there is a store for that.
        stored = max(0, slots - self.least) * measured.snapshot + slots * self.each
        tables = tracked(slots, measured.leaves, measured.snapshot)
        if self.number is not None and slots < self.number:
            tables += planned(self.number, slots)
        tables += min(_GROWN, measured.grown * self._evaluations(slots))
        return max(LEAST + 2 * measured.digest, stored + tables + self.besides + measured.working(turn))

    def _evaluations(self, slots: int) -> int:
        """How many steps run, replays and reversals included."""
        return _MANY if self.number is None else advances(self.number, max(1, slots)) + 2 * self.number

    def needed(self, slots: int) -> int:
        """The bytes of a budget with which a run has so many snapshots: some room is left for other reversals."""
        measured = self.measured
        spare = slots // (_SHARE if measured.tried else _SHARE_UNTRIED) * measured.state
        return self.taken(slots, measured.turn) + spare + JITTER

    def fits(self, slots: int) -> bool:
        """Whether there is room for so many snapshots."""
        return self.needed(slots) <= self.budget

    def minimum(self, slots: int) -> int:
        """A budget with which a run with so many snapshots succeeds, whatever another trial of the step shows."""
        runs, grown = self._evaluations(slots), self.measured.grown
        unsure = min(_GROWN, runs * (grown + _UNSURE)) - min(_GROWN, runs * grown) if grown else 0
        return self.needed(slots) + JITTER + _LEAF * self.measured.leaves + unsure

    def check_reversal(self, number: int, taken: int, adjoint: int) -> int:
        """Hold what the first reversal of ``number`` allocated against the room that it had; what it was."""
        taken = max(taken + adjoint - self.measured.adjoint, 0)
        if taken <= self.measured.turn or self.taken(min(self.slots, number), taken) <= self.budget:
            return taken
        low, high = self.least, max(number, self.least)
        while low < high:
            # The more snapshots there are, the more room is left beside them.
            middle = (low + high) // 2
            low, high = (low, middle) if self.taken(middle, taken) <= self.needed(middle) else (middle + 1, high)
        minimum = max(self.needed(low), self.taken(low, taken)) + 2 * JITTER
        fewer = max(self.needed(low - 1), self.taken(low - 1, taken)) + 2 * JITTER if low > self.least else minimum
        if fewer + JITTER < self.needed(low):
            minimum = fewer
        raise BudgetError(
            f"a reversal allocates {format_bytes(taken)}, for which a budget of {self.budget} bytes "
            f"({format_bytes(self.budget)}) leaves no room: the smallest budget is {minimum} bytes "
            f"({format_bytes(minimum)})",
            minimum=minimum,
        )


def measure(steps: OwnAdjoint, state: State, seed: Any, number: int | None, timed: bool) -> FirstSteps:
    """Run step 0 and see what it takes, and step 1 as well if there surely is one: without tracing if it is timed.

    ``number`` is how many steps there are, or ``None``.
    """
    begun = perf_counter()
    with TracedMemory() as traced:
        after = steps.advance(state, 0)
    seconds, taken = perf_counter() - begun, [after]
    leaves = flatten(after)[0]
    other = any(kind_of(leaf) is OTHER for leaf in leaves)
    size = max(nbytes(after), traced.held if other else min(traced.held, own_size(after)))
    once = traced.held - size if traced.held - size > _NOTICED else 0
    advance, grown = traced.peak, 0
    if number is not None and number > 1:
        with Holdings() as holdings:
            # The state after step 0 is still to be used: its objects must not change.
            held = holdings.state(holdings.hold(after))
            begun = perf_counter()
            if timed:
                taken.append(steps.advance(held, 1))
                seconds = perf_counter() - begun
            else:
                with TracedMemory() as second:
                    taken.append(steps.advance(held, 1))
                seconds = perf_counter() - begun
                left = second.held - max(nbytes(taken[1]), own_size(taken[1]))
                grown = 0 if other or left <= _NOTICED else left
                advance = max(traced.peak - once, second.peak)
    with Holdings() as holdings:
        with TracedMemory() as copied:
            holdings.hold(state)
        with TracedMemory() as kept:
            holdings.hold(after, keep=True)
        with TracedMemory() as looked:
            digests(after)
    # A store works in the background, where its memory can't be told from that of a reversal.
    found = None if timed else _try_reversal(steps, state, after, seed)
    adjoint, most, turn, left = found if found is not None else _guess(seed, size, advance - size)
    return FirstSteps(
        state=size,
        held=kept.held,
        leaves=len(leaves),
        advance=advance,
        turn=turn,
        tried=found is not None,
        adjoint=adjoint,
        seed=most,
        digest=looked.peak,
        first=copied.held if copied.held >= max(1, nbytes(state)) else 0,
        lasting=once,
        grown=grown + left,
        seconds=seconds,
        copied=any(kind_of(leaf) is OTHER and not is_generator(leaf) for leaf in leaves),
        taken=taken,
    )


def _try_reversal(steps: OwnAdjoint, state: State, after: State, seed: Any) -> tuple[int, int, int, int] | None:
    """The bytes of an adjoint, and the most that the seed and a reversal have at once, and what that leaves."""

    def trial() -> tuple[int, int, int, int]:
        with TracedMemory() as seeded:
            given = copy(seed(after) if callable(seed) else seed)
        adjoint = seeded.held
        steps.turn(state, given, 0)  # The first time there may be things to be set up.
        given = None
        given = copy(seed(after) if callable(seed) else seed)
        with TracedMemory() as turned:
            result = steps.turn(state, given, 0)
        left = turned.held - own_size(result)
        return adjoint, seeded.peak if callable(seed) else 0, turned.peak, left if left > _NOTICED else 0

    return tried([steps.reverse, state, after, *([seed] if callable(seed) else [])], trial)


def _guess(seed: Any, state: int, workspace: int) -> tuple[int, int, int, int]:
    """The same where a reversal can't be tried."""
    adjoint = state if callable(seed) else own_size(seed)
    return adjoint, 0, adjoint + max(8 * state, 2 * workspace + state) + 4 * JITTER, 0


def allot(
    budget: int, measured: FirstSteps, number: int | None, states: int = 0, nbytes: int = 0, each: int = 0
) -> Allotment:
    """Divide a budget; ``states`` and ``nbytes`` are held besides what every run holds."""
    besides = (
        BOOKKEEPING + _LEAF * measured.leaves + measured.first + measured.lasting + states * measured.snapshot + nbytes
    )
    return Allotment(budget, measured, besides + _FREE_LISTS * measured.copied, 1, each, number)


def refuse_untraced(state: State) -> None:
    """Refuse arrays whose memory Python can't trace: a budget that is not measured would be a guess."""
    for leaf in flatten(state)[0]:
        if kind_of(leaf).name in ("torch", "jax"):
            raise ValueError(
                f"memory= bounds what NumPy and Python allocate, and the state holds a {kind_of(leaf).name} array, "
                "whose memory can't be measured here: give slots= instead"
            )


def refuse(budget: int, minimum: int, measured: FirstSteps) -> NoReturn:
    """Say that the budget is too small, and which one is not."""
    turn = {"a reversal" if measured.tried else "a reversal perhaps": measured.turn}
    parts = {"a state": measured.state, "a step besides its result": measured.workspace, **turn}
    raise too_few(budget, "these steps", minimum, **parts)
