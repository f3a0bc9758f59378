"""The journal of a run that may be killed: enough on disk, at every moment, to go on with the same bits.

A commit writes the states held in memory that are not on disk yet, then the working state and the
adjoint under a new number, then one entry that names them all. That entry is the commit: before it
the older one holds, after it the older one's files are dropped. Commits are made as often as they
cost one sixtieth of the time between them, so the journal takes at most about 2 % of a run.

What is not on disk when a run is resumed (snapshots laid since the last commit) is computed again
from the latest state before it that is.
"""

from __future__ import annotations

from os import PathLike
from time import perf_counter
from typing import Any

from ..errors import CorruptSnapshot, ResumeError
from ..store import Disk
from ..tree import nbytes
from .identity import differences
from .run import Run
from .shelves import MemoryShelf, StoreShelf, key_of

_SHARE = 60
_GLANCE = 0.02  # seconds between looks at the clock
_ENTRY = "entry"


class Journal:
    """The files of one run under ``path``."""

    def __init__(self, path: str | PathLike[str], parts: dict[str, str]) -> None:
        self._store = Disk(path, run="resume", keep=True, durable=True)
        self._parts = parts
        self._number = 0
        self._committed = perf_counter()
        self._cost = 0.0
        self._schedule: Any = None
        self._entry: dict[str, Any] | None = None
        if _ENTRY in self._store:
            try:
                self._read()
            except BaseException:
                self._store.close()
                raise

    @property
    def begun(self) -> bool:
        """Whether there is a run to go on with."""
        return self._entry is not None

    @property
    def schedule(self) -> Any:
        """The schedule that the interrupted run followed."""
        assert self._entry is not None
        return self._entry["schedule"]

    def begin(self, run: Run, schedule: Any) -> str:
        """Commit the beginning of a run, or bring it to where the last commit was; the phase it is in."""
        self._schedule = schedule
        if self.begun:
            self._resume(run)
        else:
            self.commit(run)
        return run.phase

    def look(self, run: Run, now: float) -> float:
        """Commit if enough time has passed for it to be cheap; when to look again."""
        pause = _SHARE * max(self._cost, 1e-3)
        if now - self._committed >= pause:
            self.commit(run)
            pause = _SHARE * max(self._cost, 1e-3)
        return max(perf_counter() + _GLANCE, self._committed + pause)

    def _read(self) -> None:
        entry = self._store.get(_ENTRY)
        differing = differences(entry["parts"], self._parts)
        if differing:
            raise ResumeError(
                f"the interrupted run in {self._store.path} is not this one: {', '.join(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}. Call it as it was, or remove it with "
                f"`pebbling clean {self._store.path}` to start anew"
            )
        self._entry, self._number = entry, entry["number"]

    def commit(self, run: Run) -> None:
        """Put on disk all that it takes to go on from here."""
        begun = perf_counter()
        held = self._in_memory(run)
        known = set(self._store.keys())
        for step, state in held.items():
            if key_of(step) not in known:
                self._store.put(key_of(step), state)
        self._number += 1
        moment = {"state": run.state, "adjoint": run.adjoint, "final": run.final}
        self._store.put(f"moment{self._number}", moment)
        report = run.report
        self._store.put(
            _ENTRY,
            {
                "parts": self._parts,
                "number": self._number,
                "phase": run.phase,
                "schedule": self._schedule,
                "index": run.index,
                "at": run.at,
                "steps": run.number,
                "table": dict(run.table),
                "tapes": sorted(run.tapes),
                "counts": (report.advances, report.reversals, report.stores, report.restores, report.recovered),
                "seconds": dict(report.seconds),
                "seen": dict(run.verifier.seen) if run.verifier is not None else {},
            },
        )
        needed = {_ENTRY, f"moment{self._number}", *map(key_of, held)}
        for key in set(self._store.keys()) - needed:
            self._store.drop(key)
        self._committed = perf_counter()
        self._cost = self._committed - begun

    def _resume(self, run: Run) -> None:
        """Bring a fresh run to where the last commit was."""
        assert self._entry is not None
        entry = self._entry
        moment = self._store.get(f"moment{entry['number']}")
        run.state, run.adjoint, run.final = moment["state"], moment["adjoint"], moment["final"]
        run.index, run.at, run.number = entry["index"], entry["at"], entry["steps"]
        counts = run.report
        counts.advances, counts.reversals, counts.stores, counts.restores, counts.recovered = entry["counts"]
        counts.seconds.update(entry["seconds"])
        counts.resumed_at = entry["index"]
        if run.verifier is not None:
            run.verifier.seen.update(entry["seen"])
        run.phase = entry["phase"]
        self._refill(run, entry["table"], entry["tapes"])

    def finish(self) -> None:
        """The run is over: nothing is left to go on with."""
        self._store.keep = False
        self._store.close()

    def close(self) -> None:
        """Leave the files for the next try."""
        self._store.close()

    def _refill(self, run: Run, table: dict[tuple[int, int], int], tapes: list[int]) -> None:
        """Put every snapshot and tape back, in the order of their steps; compute those that are lost."""
        places = {step: place for place, step in table.items()}
        state, at = run.first, 0
        for step in sorted({*places, *tapes}):
            found = self._find(step)
            if found is None and step in places and self._adopt(run, step, *places[step]):
                continue
            if found is not None:
                state, at = found, step
            while at < step:
                state, at = run.steps.advance(state, at), at + 1
                run.report.advances += 1
            if step in tapes:
                run.tapes[step] = run.taped(state)
            if step in places:
                tier, slot = places[step]
                run.shelves[tier].put(slot, step, state)
                run.table[tier, slot] = step

    @staticmethod
    def _adopt(run: Run, step: int, tier: int, slot: int) -> bool:
        """Take over a snapshot that is still in the slow store; whether it is."""
        shelf = run.shelves[tier]
        if not isinstance(shelf, StoreShelf) or key_of(step) not in shelf.store:
            return False
        shelf.adopt(slot, step, nbytes(run.first))
        run.table[tier, slot] = step
        return True

    def _find(self, step: int) -> Any:
        if key_of(step) not in self._store:
            return None
        try:
            return self._store.get(key_of(step))
        except CorruptSnapshot:
            return None

    def _in_memory(self, run: Run) -> dict[int, Any]:
        """The states held in memory, by step."""
        held = {step: run.state_of_tape(step) for step in run.tapes}
        for (tier, slot), step in run.table.items():
            shelf = run.shelves[tier]
            if isinstance(shelf, MemoryShelf):
                held[step] = shelf.get(slot)
        return held
