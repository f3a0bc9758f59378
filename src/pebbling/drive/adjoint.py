"""The adjoint of a chain of steps by the user's own forward and adjoint code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from math import inf
from os import PathLike
from time import perf_counter
from typing import Any

from ..chain import Action, Advance, Online, Restore, Schedule
from ..chain.binomial import advances
from ..chain.validate import whole
from ..store import Disk, Store
from ..tree import copy, nbytes
from .agree import agree
from .budget import check_reversal
from .dump import Dump
from .holdings import Holdings
from .identity import identity
from .journal import Journal
from .progress import Progress
from .report import Report
from .run import Run
from .settle import Budget, Settled, settle
from .shelves import MemoryShelf, Shelf, StoreShelf
from .steps import Adjoint, OwnAdjoint, State
from .tracing import Traced
from .verify import verifier


@dataclass(frozen=True)
class Result:
    """The final state, the adjoint of the initial one, and what it took."""

    state: State
    adjoint: Adjoint
    report: Report


def adjoint(
    advance: Callable[[State, Any], State],
    reverse: Callable[[State, Adjoint, Any], Adjoint],
    state: State,
    steps: int | range | Callable[[State, int], bool],
    seed: Adjoint | Callable[[State], Adjoint],
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    store: Store | None = None,
    resume: str | PathLike[str] | None = None,
    progress: bool = False,
    verify: str | bool = "last",
    comm: Any = None,
    dump: Dump | None = None,
    trace: bool = False,
) -> Result:
    """Run a chain of steps forward and its adjoint backward within a budget.

    ``advance(state, i)`` gives the state after step ``i`` in new arrays; ``reverse(state, adjoint, i)``
    gives the adjoint before step ``i`` from the state before it and the adjoint after it. ``steps``
    is a number, a ``range`` whose members are passed as ``i``, or a predicate ``more(state, i)`` for
    a loop of unknown length. ``seed`` is the adjoint of the final state, or a function of that state.

    At most one of ``slots`` (snapshots, that of the initial state included), ``memory`` (bytes above
    what was allocated before the call) and ``schedule``; with none, the fewest slots for which no
    step is advanced more than twice. ``store`` takes the snapshots of the slowest tier. ``resume``
    is a directory from which a killed run goes on. ``verify`` compares replayed states with those
    of the first sweep: one of them ("last"), all of them ("all") or none (False). ``comm`` is a
    communicator of mpi4py whose ranks run the same plan. ``trace`` keeps a timeline for the report.

    >>> result = adjoint(lambda x, i: x * x, lambda x, a, i: 2 * x * a, 1.1, 3, seed=1.0, slots=2)
    >>> round(result.state, 6), round(result.adjoint, 6)
    (2.143589, 15.589738)
    """
    index = steps if callable(steps) or isinstance(steps, range) else range(whole(steps, "steps", 0))
    budget = Budget(slots, memory, schedule)
    own = OwnAdjoint(advance, reverse, None if callable(index) else index)
    if comm is not None and resume is not None:
        raise ValueError("resume= with comm= is not possible: ranks could come back at different steps")
    with ExitStack() as cleanup:
        journal = None
        if resume is not None:
            functions = {"advance": advance, "reverse": reverse} | ({"steps": index} if callable(index) else {})
            journal = Journal(resume, identity(budget, index, state, seed, functions))
            cleanup.callback(journal.close)
        if journal is not None and journal.begun:
            settled = Settled(journal.schedule)
        else:
            settled = settle(budget, own, state, index, store, comm)
        run = _prepare(own, settled, state, seed, store, resume, verify, trace)
        cleanup.callback(run.clear)
        run.reversed = dump
        _run(run, settled, index, comm, journal, progress, cleanup)
        run.finish()
        _compare_with_plan(run, settled.schedule)
        if journal is not None:
            journal.finish()
    return Result(run.final, run.adjoint, run.report)


def _prepare(
    own: OwnAdjoint,
    settled: Settled,
    state: State,
    seed: Any,
    store: Store | None,
    resume: Any,
    verify: Any,
    trace: bool,
) -> Run:
    """The run with its shelves, its report and its checks, nothing run yet."""
    schedule, holdings = settled.schedule, Holdings()
    size = nbytes(state)
    report = Report(_brief(schedule), state_bytes=size, lossy=store is not None and store.lossy)
    shelves = _shelves(schedule, store, resume, holdings, size)
    known = None if isinstance(schedule, Online) else schedule
    run = Run(
        _once_measured(own, settled),
        0 if known is None else known.steps,
        state,
        seed if callable(seed) else lambda _: copy(seed),
        shelves,
        holdings,
        report,
        verifier(verify, known),
        trace,
    )
    run.keep_first()
    return run


def _shelves(
    schedule: Schedule | Online, store: Store | None, resume: Any, holdings: Holdings, size: int
) -> list[Shelf]:
    """Memory for the fast tier; the store for the slow one, or for the only one."""
    tiers = 1 if isinstance(schedule, Online) else len(schedule.model.rooms)
    if store is None:
        if tiers > 1:
            raise ValueError(f"{_brief(schedule)} has {tiers} tiers: give store= for the slow one")
        return [MemoryShelf(holdings)]
    if tiers > 2:
        raise ValueError(f"{_brief(schedule)} has {tiers} tiers; a run uses memory and one store")
    if resume is not None and not (isinstance(store, Disk) and store.keep):
        raise ValueError("with resume= the store must outlive the process: Disk(path, run='…', keep=True)")
    slots = schedule.slots if isinstance(schedule, Online) else int(schedule.cost.peaks[-1])
    store.reserve(slots, size)
    return [*([MemoryShelf(holdings)] if tiers == 2 else []), StoreShelf(store, type(store).__name__.lower())]


def _once_measured(own: OwnAdjoint, settled: Settled) -> OwnAdjoint:
    """Steps of a run whose first step has been taken already, and whose first reversal is measured."""
    measured, budget = settled.measured, settled.budget
    if measured is None or budget is None:
        return own
    advance, turn = own.advance, own.turn

    def first_advance(state: State, step: int) -> State:
        own.advance = advance  # type: ignore[method-assign]
        after, measured.after = measured.after, None
        return after if step == 0 else advance(state, step)

    def first_turn(state: State, adjoint: Adjoint, step: int) -> Adjoint:
        own.turn = own.reverse = turn  # type: ignore[method-assign]
        with Traced() as traced:
            result = turn(state, adjoint, step)
        check_reversal(budget, measured, traced.peak)
        return result

    own.advance, own.turn, own.reverse = first_advance, first_turn, first_turn  # type: ignore[method-assign]
    return own


def _run(
    run: Run, settled: Settled, index: Any, comm: Any, journal: Journal | None, progress: bool, cleanup: ExitStack
) -> None:
    """Take all actions, from the start or from the last commit."""
    schedule = settled.schedule
    phase = "sweep"
    if journal is not None:
        phase = journal.begin(run, schedule)
    bar = None
    if progress:
        total = None if isinstance(schedule, Online) else schedule.cost.advances + 1
        bar = Progress(total, None if isinstance(schedule, Online) else schedule.steps)
        cleanup.callback(bar.close)
    _watch(run, journal, bar)
    if isinstance(schedule, Online):
        if phase == "sweep":
            sweep(run, schedule, index, comm)
        schedule = schedule.ended(run.number)
        run.phase, run.index = "plan", max(run.index, schedule.end_forward) if phase == "sweep" else run.index
        if bar is not None:
            bar.known(schedule.cost.advances, schedule.steps)
    actions = _from_here(schedule.since(run.index), run.at)
    slow = {tier for tier, shelf in enumerate(run.shelves) if isinstance(shelf, StoreShelf)}
    ahead = None
    if slow:
        ahead = (a for a in schedule.since(run.index) if type(a) is Restore and a.tier in slow)
    run.go(actions, ahead)


def sweep(run: Run, online: Online, more: Callable[[State, int], bool], comm: Any) -> None:
    """The first sweep of a loop of unknown length; the run is left at its end."""
    placement = online.placement()
    kept = next(placement, None)
    while kept is not None and kept.step < run.at:
        kept = next(placement, None)
    before: State = None
    for step in count(run.at):
        going = bool(more(run.state, step))
        agree(comm, f"whether the loop goes on at step {step}", going)
        if not going:
            break
        if kept is not None and kept.step == step:
            if kept.evicted is not None:
                run.free(kept.evicted, kept.slot, 0)
            run.store(step, kept.slot, 0)
            kept = next(placement, None)
        before = run.state
        run.advance(step, step + 1)
    run.number = run.at
    if before is not None and run.verifier is not None:
        run.verifier.look_back(before, run.number - 1)


def _from_here(actions: Iterator[Action], at: int) -> Iterator[Action]:
    """The actions, the first of them without the steps that were taken before the last commit."""
    first = next(actions, None)
    if first is None:
        return
    if isinstance(first, Advance) and first.start < at < first.stop:
        first = Advance(at, first.stop)
    yield first
    yield from actions


def _watch(run: Run, journal: Journal | None, bar: Progress | None) -> None:
    """Let the journal and the bar look at the run now and then."""
    if journal is None and bar is None:
        return

    def every(run: Run, now: float) -> float:
        following = inf
        if journal is not None:
            following = journal.look(run, now)
        if bar is not None:
            following = min(following, bar.show(run, now))
        return following

    run.every, run.deadline = every, perf_counter()


def _compare_with_plan(run: Run, schedule: Schedule | Online) -> None:
    """Put what was planned, and what is possible at best, beside what was done."""
    report = run.report
    plan = schedule.ended(run.number) if isinstance(schedule, Online) else schedule
    rooms = plan.model.rooms
    slots = sum(run.number if room.capacity is None else int(room.capacity) for room in rooms)
    slots = min(max(slots, 1), max(run.number, 1))
    report.minimum = run.number + advances(run.number, slots) + min(run.number, 1)
    for shelf, peak in zip(run.shelves, plan.cost.peaks):
        report.planned[shelf.name] = int(peak * report.state_bytes)


def _brief(schedule: Schedule | Online) -> str:
    text = repr(schedule)
    return text if len(text) <= 200 else f"{type(schedule).__name__} of {getattr(schedule, 'steps', '?')} steps"
