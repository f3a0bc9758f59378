"""The adjoint of a chain of steps by the user's own forward and adjoint code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from math import inf
from os import PathLike
from time import perf_counter
from typing import Any

from ..budget import Budget, store_from, told
from ..chain import Action, Advance, EndForward, Online, Restore, Revolve, Schedule
from ..chain.online import Ended
from ..chain.validate import whole
from ..logs import note
from ..store import Store
from ..tree import nbytes
from .agree import ending_together, together
from .checks import check_first_calls, check_functions, check_last, check_seed, seed_of
from .dump import Dump
from .explain import explained
from .handover import Handover
from .holdings import Holdings
from .identity import identity
from .inverse import Inverse, check_inverse
from .journal import Journal
from .outlive import Outliving
from .progress import Progress
from .ranks_journal import JournalOfRanks
from .report import Report, brief, compare_with_plan, tell
from .resume import resume as take_over
from .run import Run
from .settle import Chosen, Problem, settle
from .shelves import StoreShelf, leave, make_shelves
from .steps import Adjoint, OwnAdjoint, State
from .sweep import sweep
from .tracing import Alone
from .unwind import back, spread
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
    inverse: Callable[[State, Any], State] | None = None,
    drift: float = 0.0,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    store: Store | str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    progress: bool = False,
    verify: str | bool = "last",
    comm: Any = None,
    dump: Dump | str | PathLike[str] | None = None,
    trace: bool = False,
    budget: Budget | None = None,
) -> Result:
    """Run a chain of steps forward and its adjoint backward within a budget.

    ``advance(state, i)`` gives the state after step ``i`` in new arrays; ``reverse(state, adjoint, i)``
    gives the adjoint before step ``i`` from the state before it and the adjoint after it. ``steps``
    is a number, a ``range`` whose members are passed as ``i``, or a predicate ``more(state, i)`` for
    a loop of unknown length. ``seed`` is the adjoint of the final state, or a function of that state.

    At most one of ``slots`` (snapshots, that of the initial state included), ``memory`` (bytes above
    what was allocated before the call) and ``schedule``; with none, the fewest slots for which no
    step is advanced more than twice. ``store``, a store, a path or a URL, takes the snapshots of the
    slowest tier. ``resume``
    is a directory from which a killed run goes on. ``verify`` compares replayed states with those
    of the first sweep: one of them ("last"), all of them ("all") or none (False). ``comm`` is a
    communicator of mpi4py whose ranks run the same plan; with ``resume`` each rank has a folder of its own there, and
    a run goes on from the last commit that all of them made. ``trace`` keeps a timeline for the report.
    ``inverse(state, i)``, if there is one, gives the state before step ``i`` from the one after it: states are computed
    backwards, and must have the bits of the first sweep, else steps are replayed; ``drift`` allows them to be off by
    as much, which the report tells.
    ``budget`` is a ``pb.Budget`` in place of ``slots``, ``memory``, ``schedule``, ``store`` and ``verify``.

    >>> result = adjoint(lambda x, i: x * x, lambda x, a, i: 2 * x * a, 1.1, 3, seed=1.0, slots=2)
    >>> round(result.state, 6), round(result.adjoint, 6)
    (2.143589, 15.589737)
    """
    with together(comm, "the arguments"):
        check_functions(advance, reverse, steps)
        dump = Dump(dump) if isinstance(dump, str | PathLike) else dump
        if dump is not None and not callable(dump):
            raise TypeError(f"dump is a path or a pb.Dump, not {dump!r}")
        index = steps if callable(steps) or isinstance(steps, range) else range(whole(steps, "steps", 0))
        budget = told(budget, "pb.adjoint", slots=slots, memory=memory, schedule=schedule, store=store, verify=verify)
        memory, verify, by_path = budget.memory, budget.verify, isinstance(budget.store, str | PathLike)
        store = store_from(budget.store) if isinstance(budget.store, str | PathLike) else budget.store
        check_inverse(inverse, drift, comm=comm, resume=resume, schedule=budget.schedule)
        back_again = None if inverse is None else Inverse(inverse, drift, None if callable(index) else index)
        if back_again is not None:
            verify = _proof(verify, drift, memory, index, store)
        if trace and memory is not None:
            raise ValueError("trace=True keeps every action, which no budget in bytes bounds: give slots= instead")
        seed = seed_of(seed, state)
        if not callable(seed):
            check_seed(seed, state)
    own = OwnAdjoint(advance, reverse, None if callable(index) else index)
    check_first_calls(own)
    run: Run | None = None
    with (
        ExitStack() as cleanup,
        nullcontext() if comm is None else ending_together(comm),
        Alone() if memory is not None else nullcontext(),
        explained(lambda: "step 0" if run is None else run.where()),
    ):
        if by_path and resume is None and store is not None:
            cleanup.callback(store.close)
        holdings = cleanup.enter_context(Holdings())
        journal = None
        with together(comm, "preparing the store"):
            outliving = None if resume is None or store is None else Outliving(store)
        if resume is not None:
            parts = identity(budget, index, state, seed, {"advance": advance, "reverse": reverse})
            journal = cleanup.enter_context(
                Journal(resume, parts, store) if comm is None else JournalOfRanks(resume, parts, store, comm)
            )
        first = holdings.hold(state)
        problem = Problem(
            own, lambda: holdings.state(first), index, seed, store, verify, comm, resume is not None, back_again
        )
        if journal is not None and journal.entry is not None:
            settled = Chosen(journal.schedule(budget.schedule, None if callable(index) else len(index)), index)
        else:
            settled = settle(budget, problem)
        plan = settled.schedule
        known = None if isinstance(plan, Online) else plan
        if journal is not None and journal.entry is not None:
            note("adjoint: goes on with the run in %s, %s", resume, brief(plan))
        else:
            note("adjoint: %s", brief(plan))
        report = Report(brief(plan), state_bytes=nbytes(state), lossy=store is not None and store.lossy)
        handover = Handover(own, settled, None if known is None else known.steps)
        name = None if journal is None else journal.name
        shelves = make_shelves(plan, budget, problem, holdings, name, report.state_bytes)
        cleanup.push(lambda _, error, trace: leave(shelves, error, journal is not None, report.left))
        seeded = _checked(seed) if callable(seed) else lambda _: seed
        length = 0 if known is None else known.steps
        run = Run(own, length, first, seeded, shelves, holdings, report, verifier(verify, known), trace)
        run.reversed = dump
        slots = plan.slots if isinstance(plan, Revolve | Online) else length
        if back_again is not None and (known is None or back_again.is_worth_it(length, slots)):
            _run_inverse(run, settled, back_again, slots)
        else:
            _run(run, settled, handover, comm, journal, progress, cleanup)
        run.finish()
        check_last(state, run.final)
        compare_with_plan(report, handover.plan, [shelf.name for shelf in shelves])
        if journal is not None:
            journal.finish(run)
    if outliving is not None:
        outliving.end()
        if by_path and store is not None:
            store.close()
    tell(report.left)
    return Result(run.final, run.adjoint, run.report)


def _proof(verify: str | bool, drift: float, memory: Any, index: Any, store: Store | None) -> str | bool:
    """What is verified of a run with an inverse."""
    if store is not None and memory is not None:
        raise ValueError("inverse= with memory= and store= is not possible: give slots= with store=")
    if drift:
        return False
    if verify is False:
        raise ValueError(
            "states that inverse= recomputes are compared with the first sweep: leave out verify=False, or say how far "
            "they may be off with drift="
        )
    if memory is not None and callable(index):
        raise ValueError(
            "inverse= remembers a digest of every state, which no budget in bytes bounds in a loop of unknown length: "
            "give slots= in place of memory="
        )
    return "all"


def _run_inverse(run: Run, settled: Chosen, inverse: Inverse, slots: int) -> None:
    """Sweep forward with snapshots here and there, then go back by the inverse."""
    if isinstance(settled.schedule, Online):
        _sweep(run, settled.schedule, settled.index, None)
        run.go([EndForward()])
    else:
        run.go(spread(run.number, slots))
    run.report.schedule = f"inverse, with {min(slots, run.number)} snapshots"
    back(run, inverse, slots)


def _checked(seed: Callable[[State], Adjoint]) -> Callable[[State], Adjoint]:
    def seeded(final: State) -> Adjoint:
        given = seed(final)
        check_seed(given, final)
        return given

    return seeded


def _run(
    run: Run,
    settled: Chosen,
    handover: Handover,
    comm: Any,
    journal: Journal | None,
    progress: bool,
    cleanup: ExitStack,
) -> None:
    """Take all actions, from the start or from the last commit."""
    plan, bar = settled.schedule, None
    rest: Schedule
    passed = 0
    if journal is not None:
        if journal.entry is not None:
            take_over(run, journal)
        journal.begin(run, plan)
    if progress:
        bar = cleanup.enter_context(Progress(None if isinstance(plan, Online) else plan))
    _watch(run, journal, bar)
    if isinstance(plan, Online):
        rest = _sweep(run, plan, settled.index, comm)
        passed = rest.end_forward
        if bar is not None:
            bar.follow(rest)
    else:
        rest = plan
    slow = {tier for tier, shelf in enumerate(run.shelves) if isinstance(shelf, StoreShelf)}
    index = passed + run.index
    ahead = (a for a in rest.since(index) if type(a) is Restore and a.tier in slow) if slow else None
    actions = _from_here(rest.since(index), run.at)
    run.go(actions if journal is not None or comm is not None else handover.better(run, actions), ahead)


def _sweep(run: Run, online: Online, more: Any, comm: Any) -> Ended:
    """Take the first sweep of a loop of unknown length, unless it is over; the plan that it turned out to follow."""
    if run.phase == "sweep":
        run.go(sweep(run, online, more, comm))
        run.phase, run.index = "way back", 0
        if run.verifier is not None:
            run.verifier.aim(set(run.table.values()))
    return online.ended(run.number)


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
