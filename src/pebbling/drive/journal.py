"""The journal of a run that may be killed: enough on disk, at every moment, to go on with the same bits.

A commit writes the states held in memory that are not on disk yet, then the working state and the
adjoint under a new number, then one entry that names them all. That entry is the commit: before it
the older one holds, after it the older one's files are dropped. A commit is made when, with it, all
commits together are expected to have taken a sixtieth of the time, so the journal takes at most
about 2 % of a run.

A run that is over commits its result, and only then are its files removed: whoever is killed meanwhile, or can't
remove them, finds the result when the same call is made again.

What is not on disk when a run is resumed (snapshots on their way to a slow store) is computed again
from the latest state before it that is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import inf
from os import PathLike
from time import perf_counter
from typing import Any, NamedTuple, Self
from uuid import uuid4

from ..chain import Online, Schedule
from ..errors import CorruptSnapshot, ResumeError, StoreError
from ..store import Disk, Store
from ..tree import nbytes
from .entry import checked
from .identity import differences
from .outlive import disk_of
from .plans import as_read, as_written
from .run import OVER, Run
from .shelves import MemoryShelf

_SHARE = 60
_GLANCE = 0.02  # seconds between looks at the clock
_ENTRY, _RUN = "entry", "resume"


class _Commit(NamedTuple):
    seconds: float
    nbytes: int


class Journal:
    """The files of one run under ``path``, beside those of its ``store`` if that is where it keeps its own."""

    def __init__(self, path: str | PathLike[str], parts: dict[str, str], store: Store | None = None) -> None:
        self.store = _open(path, store)
        self.name = uuid4().hex[:12]
        self._parts = parts
        self._number = 0
        self._begun = perf_counter()
        self._spent = 0.0
        self._last = _Commit(1e-3, 1)
        self._least = inf
        self._schedule: Any = None
        self._left: list[str] | None = None
        self.entry: dict[str, Any] | None = None
        try:
            self._find_commit()
        except BaseException:
            with suppress(StoreError):
                self.store.close()
            raise

    def begin(self, run: Run, schedule: Any) -> None:
        """Commit where a run that follows ``schedule`` begins, or goes on."""
        self._schedule = schedule
        self.commit(run)

    def look(self, run: Run, now: float) -> float:
        """Commit if enough time has passed for it to be cheap; when to look again."""
        due = self._begun + _SHARE * (self._spent + self._expected(run))
        if now >= due:
            self.commit(run)
        return max(perf_counter() + _GLANCE, due)

    def _find_commit(self) -> None:
        """Look for the commit from which this run goes on."""
        if _ENTRY in self.store:
            self._take(self._read(_ENTRY))

    def _read(self, key: str) -> dict[str, Any] | None:
        """What a commit says, if it is of this call; ``None`` if it is of another one, which is over."""
        entry = checked(self._committed(key), self.store.path)
        differing = differences(entry["parts"], self._parts)
        if differing and entry["phase"] == OVER:
            return None  # that run gave its result, and only its files could not be removed
        if differing:
            raise ResumeError(
                f"the interrupted run in {self.store.path} is not this one: {', '.join(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}. Call it as it was, or remove it with "
                f"`pebbling clean {self.store.path}` to start anew"
            )
        return entry

    def _take(self, entry: dict[str, Any] | None) -> None:
        """Go on from that commit."""
        if entry is not None:
            self.entry, self._number, self.name = entry, entry["number"], entry["name"]

    def schedule(self, given: Schedule | Online | None, number: int | None) -> Schedule | Online:
        """What the run follows: the schedule that the call gives, or else the one that was written."""
        assert self.entry is not None
        if given is not None:
            return given
        try:
            return as_read(self.entry["schedule"], number)
        except ValueError as error:
            raise ResumeError(self._stuck(str(error))) from error

    def _expected(self, run: Run) -> float:
        """Seconds that a commit is expected to take now, from the last one and from the bytes to be written."""
        known = set(self.store.keys())
        size = nbytes([run.state, run.adjoint, run.final if self._final not in known else None])
        size += run.report.state_bytes * sum(self._key(step) not in known for step in _steps_in_memory(run))
        return max(self._least, self._last.seconds * size / self._last.nbytes)

    def commit(self, run: Run) -> None:
        """Put on disk all that it takes to go on from here."""
        begun = perf_counter()
        needed, written = self._write(run)
        self._retire(needed)
        self._took(perf_counter() - begun, written)

    def _write(self, run: Run) -> tuple[set[str], int]:
        """Write a commit; the keys that it needs, and the bytes written."""
        known = set(self.store.keys())
        held = _steps_in_memory(run)
        written = sum(
            self._put(self._key(step), _state_in_memory(run, step)) for step in held if self._key(step) not in known
        )
        if run.has_final and self._final not in known:
            written += self._put(self._final, run.final)
        self._number += 1
        moment = self._moment(self._number)
        written += self._put(moment, {"state": run.state, "adjoint": run.adjoint})
        self.store.put(self._entry_key, self._describe(run))
        return {self._entry_key, moment, *map(self._key, held), *([self._final] if run.has_final else [])}, written

    def _retire(self, needed: set[str]) -> None:
        """Drop what older commits needed."""
        for key in set(self.store.keys()) - needed:
            self.store.drop(key)

    def _took(self, seconds: float, written: int) -> None:
        """Remember what a commit took."""
        self._last = _Commit(seconds, max(written, 1))
        self._least = min(self._least, seconds)
        self._spent += seconds

    @property
    def _entry_key(self) -> str:
        return _ENTRY

    def _entries(self) -> list[str]:
        """The keys of all commits that are there."""
        return [key for key in map(str, self.store.keys()) if key.startswith(_ENTRY)]

    # Every key but that of the entry is this run's alone: what another one left under the like is never taken for it.

    @property
    def _final(self) -> str:
        return f"{self.name} final"

    def _moment(self, number: int) -> str:
        return f"{self.name} moment {number}"

    def _key(self, step: int) -> str:
        return f"{self.name} step {step}"

    def _put(self, key: str, tree: Any) -> int:
        self.store.put(key, tree)
        return nbytes(tree)

    def _describe(self, run: Run) -> dict[str, Any]:
        report = run.report
        return {
            "name": self.name,
            "parts": self._parts,
            "number": self._number,
            "phase": run.phase,
            "schedule": as_written(self._schedule),
            "final": run.has_final,
            "index": run.index,
            "at": run.at,
            "steps": run.number,
            "table": dict(run.table),
            "tapes": sorted(run.tapes),
            "counts": (report.advances, report.reversals, report.stores, report.restores, report.recovered),
            "compared": 0 if run.verifier is None else run.verifier.compared,
            "seconds": dict(report.seconds),
            "target": None if run.verifier is None else run.verifier.target,
            "seen": {} if run.verifier is None else dict(run.verifier.seen),
        }

    def finish(self, run: Run) -> None:
        """Put the result on disk: from now on nothing is lost, whatever happens while the files go."""
        self._left = run.report.left
        # Where there is no room for it, the result is about to be returned all the same.
        with suppress(StoreError):
            self.commit(run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave the files for the next try, unless the run is over; say what of them could not be removed then."""
        over = self._left is not None and error is None
        try:
            if over:
                # The entry goes first: whoever is killed while the files go starts anew, never from half a journal.
                for key in self._entries():
                    self.store.drop(key)
                self.store.keep = False
        except StoreError as trouble:
            self._tell(trouble)
        finally:
            try:
                self.store.close()
            except StoreError as trouble:
                if over:
                    self._tell(trouble)
                elif error is None:
                    raise

    def _tell(self, trouble: StoreError) -> None:
        assert self._left is not None
        self._left.append(f"the journal in {self.store.path} ({trouble})")

    def find(self, step: int) -> Any:
        """The state before a step, or ``None`` if it is not there in one piece."""
        if self._key(step) not in self.store:
            return None
        try:
            return self.store.get(self._key(step))
        except CorruptSnapshot:
            return None

    def moment(self) -> tuple[Any, Any, Any]:
        """The working state, the adjoint and the final state of the last commit."""
        assert self.entry is not None
        moment = self._committed(self._moment(self.entry["number"]))
        if not isinstance(moment, dict) or moment.keys() != {"state", "adjoint"}:
            raise ResumeError(self._stuck("its working state makes no sense"))
        return moment["state"], moment["adjoint"], self._committed(self._final) if self.entry["final"] else None

    def _committed(self, key: str) -> Any:
        """What the last commit holds only once."""
        try:
            return self.store.get(key)
        except StoreError as error:
            raise ResumeError(self._stuck(str(error))) from error

    def _stuck(self, why: str) -> str:
        return (
            f"the interrupted run in {self.store.path} can't go on: {why}. Remove it with "
            f"`pebbling clean {self.store.path}` to start anew"
        )


def _open(path: str | PathLike[str], store: Store | None) -> Disk:
    """The files of the journal; where the store of the run is in the same directory, they share its lock."""
    pickle = store is not None and store.pickle and not store.in_memory
    disk = disk_of(store)
    if disk is None or os.path.realpath(disk.path) != os.path.realpath(os.fsdecode(path)):
        return Disk(path, run=_RUN, keep=True, durable=True, pickle=pickle)
    if disk.run == _RUN:
        raise ValueError(f"the journal goes by the name {_RUN!r} in {disk.path}: give the store there another run=")
    return Disk.beside(disk, _RUN, keep=True, durable=True, pickle=pickle)


def _steps_in_memory(run: Run) -> list[int]:
    """The steps whose states are held in memory."""
    held = [step for (tier, _), step in run.table.items() if isinstance(run.shelves[tier], MemoryShelf)]
    return sorted({*held, *run.tapes})


def _state_in_memory(run: Run, step: int) -> Any:
    if step in run.tapes:
        return run.state_of_tape(step)
    tier, slot = next(
        (tier, slot)
        for (tier, slot), held in run.table.items()
        if held == step and isinstance(run.shelves[tier], MemoryShelf)
    )
    return run.shelves[tier].get(slot)
