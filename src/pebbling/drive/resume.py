"""Brings a fresh run to where the last commit of its journal was."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import CorruptSnapshot, ResumeError
from .journal import Journal
from .run import Run
from .shelves import StoreShelf
from .steps import State


def resume(run: Run, journal: Journal) -> None:
    """Take over counts and position, then put every snapshot and tape back where it was."""
    entry = journal.entry
    assert entry is not None
    run.state, run.adjoint, final = journal.moment()
    if entry["final"]:
        run.keep_final(final)
    run.index, run.at, run.number, run.phase = entry["index"], entry["at"], entry["steps"], entry["phase"]
    counts = run.report
    counts.advances, counts.reversals, counts.stores, counts.restores, counts.recovered = entry["counts"]
    counts.seconds.update(entry["seconds"])
    counts.resumed_at = entry["index"]
    if run.verifier is not None:
        run.verifier.seen.update(entry["seen"])
        run.verifier.compared = entry["compared"]
        if entry["target"] is not None and not run.verifier.all:
            run.verifier.target = entry["target"]
    at = run.at
    if any(tier >= len(run.shelves) for tier, _ in entry["table"]):
        raise ResumeError(f"the interrupted run in {journal.store.path} held snapshots where this one has no room")
    _refill(run, journal, entry["table"], set(entry["tapes"]))
    run.at = at


def _refill(run: Run, journal: Journal, table: dict[tuple[int, int], int], tapes: set[int]) -> None:
    """Put back the states that were held, in the order of their steps; compute those that are lost."""
    places: dict[int, list[tuple[int, int]]] = {}
    for place, step in table.items():
        places.setdefault(step, []).append(place)
    nearest = _Nearest(run, journal)
    for step in sorted({*places, *tapes}):
        for tier, slot in places.get(step, ()):
            shelf = run.shelves[tier]
            if isinstance(shelf, StoreShelf) and shelf.has(step):
                shelf.adopt(slot, step, run.report.state_bytes)
                nearest.on_shelf(step, shelf, slot)
            else:
                shelf.put(slot, step, nearest.reach(step))
            run.table[tier, slot] = step
        if step in tapes:
            run.keep_tape(nearest.reach(step), step)


class _Nearest:
    """The latest state that was brought back, from which lost ones are computed."""

    def __init__(self, run: Run, journal: Journal) -> None:
        self._run, self._journal = run, journal
        self._state: State = None
        self._step = -1
        self._shelf: tuple[int, StoreShelf, int] | None = None

    def on_shelf(self, step: int, shelf: StoreShelf, slot: int) -> None:
        """Say that the state before ``step`` can be had from a shelf."""
        self._shelf = (step, shelf, slot)

    def reach(self, step: int) -> Any:
        """The state before ``step``, which is not before that of the last call."""
        found = self._journal.find(step)
        if found is not None:
            self._state, self._step = found, step
        if self._step < step:
            self._begin(step)
        run = self._run
        while self._step < step:
            run.at = self._step
            self._state = run.steps.advance(self._state, self._step)
            self._step += 1
            run.report.advances += 1
        return self._state

    def _begin(self, step: int) -> None:
        """Begin from the snapshot on a shelf where that is nearer, and from the first state where there is nothing."""
        if self._shelf is not None and self._step < self._shelf[0] <= step:
            at, shelf, slot = self._shelf
            with suppress(CorruptSnapshot):
                self._state, self._step = shelf.get(slot), at
        if self._step < 0:
            self._state, self._step = self._run.first(), 0
