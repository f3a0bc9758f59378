"""The journal of a run over several ranks: they go on together, from a commit that all of them made.

Each rank writes a journal of its own, in a folder ``rank 3`` of the path. A commit has two phases. In the first one
every rank writes it beside the one before, which stays. When all have done so, and have told each other, the one
before is dropped. A rank that is killed in the first phase leaves others that hold both, and it holds the older: all
go on from that. Once one of them has dropped the older, all hold the newer.

    rank 0   write 8 . . . . meet . drop 7 .        rank 0 holds 7, 8 or 8
    rank 1   . . write 8 . . meet . . . drop 7      rank 1 holds 7, or 7 and 8, or 8: there is always one in common

Commits of different runs never mix: the name of a run, which rank 0 gives, is part of each.

When to commit is agreed on as well. At each commit the ranks settle after how many steps the next one is due, from the
time that the slowest of them took; no meeting is needed in between. Whether a snapshot can be read is agreed on
too, since what one rank computes again all must compute again: steps may meet.
"""

from __future__ import annotations

import os
from math import inf
from os import PathLike
from time import perf_counter
from typing import Any

from ..errors import PebblingError
from ..store import Store
from .agree import largest, smallest, together
from .journal import _ENTRY, _SHARE, Journal
from .run import Run


class JournalOfRanks(Journal):
    """The files of one rank of a run."""

    def __init__(self, path: str | PathLike[str], parts: dict[str, str], store: Store | None, comm: Any) -> None:
        self._comm = comm
        self._due = 0
        self._since = (perf_counter(), 0)
        self._opened = False
        rank, ranks = comm.Get_rank(), len(comm.allgather(None))
        own = os.path.join(os.fsdecode(path), f"rank {rank}")
        try:
            with together(comm, "making the folder of the journal"):
                os.makedirs(os.fsdecode(path), exist_ok=True)
            super().__init__(own, parts | {"the rank": f"{rank} of {ranks}"}, store)
        except BaseException as error:
            if not self._opened and isinstance(error, Exception):
                self._tell_unopened(error)
            raise

    def look(self, run: Run, now: float) -> float:
        """Commit after as many steps as were agreed on; look again at the next one."""
        if _taken(run) >= self._due:
            self.commit(run)
        return -inf

    def commit(self, run: Run) -> None:
        """Write, meet, drop what was before, and agree on when the next one is due."""
        begun = perf_counter()
        with together(self._comm, "writing a commit"):
            needed, written = self._write(run)
        with together(self._comm, "dropping the commit before"):
            self._retire(needed)
        self._took(perf_counter() - begun, written)
        before, taken = self._since
        now, count = perf_counter(), _taken(run)
        seconds = (now - before - self._last.seconds) / max(1, count - taken) if count > taken else 0.0
        self._since = now, count
        steps = _SHARE * self._last.seconds / seconds if seconds > 0 else 1
        self._due = count + max(1, int(largest(self._comm, min(steps, 1e9))))

    def finish(self, run: Run) -> None:
        """Put the result on disk on every rank."""
        self._left = run.report.left
        try:
            self.commit(run)
        except PebblingError:
            # Where there is no room for it on some rank, the result is about to be returned all the same.
            return

    def find(self, step: int) -> Any:
        """The state before a step, or ``None`` if some rank has not got its own in one piece."""
        found = super().find(step)
        return found if smallest(self._comm, found is not None) else None

    def moment(self) -> tuple[Any, Any, Any]:
        """The working state, the adjoint and the final state of the commit that all go on from."""
        with together(self._comm, "reading a commit"):
            return super().moment()

    def _find_commit(self) -> None:
        self._opened = True
        with together(self._comm, "reading the journal"):
            entries = [self._read(key) for key in self._entries()]
        found = {(entry["name"], entry["number"]): entry for entry in entries if entry is not None}
        told = self._comm.allgather((self.name, sorted(found)))
        common = set(told[0][1]).intersection(*[keys for _, keys in told])
        if common:
            self._take(found[max(common, key=lambda key: (key[1], key[0]))])
        else:
            self.name = told[0][0]

    def _tell_unopened(self, error: Exception) -> None:
        """Let the ranks that wait for this one hear that it has no journal."""
        try:
            with together(self._comm, "opening the journal"):
                raise error
        except Exception:
            return

    @property
    def _entry_key(self) -> str:
        return f"{_ENTRY} {self._number}"


def _taken(run: Run) -> int:
    """The evaluations of a step so far, which is the same on every rank at the same place."""
    return run.report.advances + run.report.reversals
