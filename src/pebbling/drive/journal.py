"""The journal of a run that may be killed: enough on disk, at every moment, to go on with the same bits.

A commit writes the states held in memory that are not on disk yet, then the working state and the
adjoint under a new number, then one entry that names them all. That entry is the commit: before it
the older one holds, after it the older one's files are dropped. A commit is made when, with it, all
commits together are expected to have taken a sixtieth of the time, so the journal takes at most
about 2 % of a run.

What is not on disk when a run is resumed (snapshots on their way to a slow store) is computed again
from the latest state before it that is.
"""

from __future__ import annotations

from math import inf
from os import PathLike
from time import perf_counter
from typing import Any, NamedTuple, Self
from uuid import uuid4

from ..errors import CorruptSnapshot, ResumeError
from ..store import Disk
from ..tree import nbytes
from .identity import differences
from .run import Run
from .shelves import MemoryShelf

_SHARE = 60
_GLANCE = 0.02  # seconds between looks at the clock
_ENTRY, _FINAL = "entry", "final"


class _Commit(NamedTuple):
    seconds: float
    nbytes: int


class Journal:
    """The files of one run under ``path``."""

    def __init__(self, path: str | PathLike[str], parts: dict[str, str]) -> None:
        self.store = Disk(path, run="resume", keep=True, durable=True)
        self.name = uuid4().hex[:12]
        self._parts = parts
        self._number = 0
        self._begun = perf_counter()
        self._spent = 0.0
        self._last = _Commit(1e-3, 1)
        self._least = inf
        self._schedule: Any = None
        self.entry: dict[str, Any] | None = None
        try:
            if _ENTRY in self.store:
                self._read()
        except BaseException:
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

    def _read(self) -> None:
        entry = self._committed(_ENTRY)
        differing = differences(entry["parts"], self._parts)
        if differing:
            raise ResumeError(
                f"the interrupted run in {self.store.path} is not this one: {', '.join(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}. Call it as it was, or remove it with "
                f"`pebbling clean {self.store.path}` to start anew"
            )
        self.entry, self._number, self.name = entry, entry["number"], entry["name"]

    def _expected(self, run: Run) -> float:
        """Seconds that a commit is expected to take now, from the last one and from the bytes to be written."""
        known = set(self.store.keys())
        size = nbytes([run.state, run.adjoint, run.final if _FINAL not in known else None])
        size += run.report.state_bytes * sum(key_of(step) not in known for step in _steps_in_memory(run))
        return max(self._least, self._last.seconds * size / self._last.nbytes)

    def commit(self, run: Run) -> None:
        """Put on disk all that it takes to go on from here."""
        begun = perf_counter()
        known = set(self.store.keys())
        held = _steps_in_memory(run)
        written = sum(
            self._put(key_of(step), _state_in_memory(run, step)) for step in held if key_of(step) not in known
        )
        if run.final is not None and _FINAL not in known:
            written += self._put(_FINAL, run.final)
        self._number += 1
        moment = f"moment{self._number}"
        written += self._put(moment, {"state": run.state, "adjoint": run.adjoint})
        self.store.put(_ENTRY, self._describe(run))
        needed = {_ENTRY, moment, *map(key_of, held), *([] if run.final is None else [_FINAL])}
        for key in set(self.store.keys()) - needed:
            self.store.drop(key)
        self._last = _Commit(perf_counter() - begun, max(written, 1))
        self._least = min(self._least, self._last.seconds)
        self._spent += self._last.seconds

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
            "schedule": self._schedule,
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

    def finish(self) -> None:
        """The run is over: nothing is left to go on with."""
        # The entry goes first: whoever is killed while the files go starts anew, and never from half a journal.
        self.store.drop(_ENTRY)
        self.store.keep = False
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the files for the next try, unless the run is over."""
        self.store.close()

    def find(self, step: int) -> Any:
        """The state before a step, or ``None`` if it is not there in one piece."""
        if key_of(step) not in self.store:
            return None
        try:
            return self.store.get(key_of(step))
        except CorruptSnapshot:
            return None

    def moment(self) -> tuple[Any, Any, Any]:
        """The working state, the adjoint and the final state of the last commit."""
        assert self.entry is not None
        moment = self._committed(f"moment{self.entry['number']}")
        return moment["state"], moment["adjoint"], self._committed(_FINAL) if _FINAL in self.store else None

    def _committed(self, key: str) -> Any:
        """What the last commit holds only once."""
        try:
            return self.store.get(key)
        except CorruptSnapshot as error:
            raise ResumeError(
                f"the interrupted run in {self.store.path} can't go on: {error}. Remove it with "
                f"`pebbling clean {self.store.path}` to start anew"
            ) from error


def key_of(step: int) -> str:
    """The key of the state before a step."""
    return f"step{step}"


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
