"""Every error that pebbling raises on purpose.

PebblingError
├── BudgetError        the budget can't be met; ``.minimum`` is the smallest that can
├── ScheduleError      a schedule breaks a rule of the pebble game
├── StoreError         a snapshot could not be kept or brought back
│   ├── CorruptSnapshot    what was read is not what was written
│   ├── StoreFull          no room for one more snapshot
│   └── DamagedFile        a plan, graph or report that is not as it was saved (a ``ValueError``, too)
├── ReplayError        a replayed step did not give what it gave the first time
├── ResumeError        the interrupted run was not this run
├── SourceError        a Python function that can't be checkpointed or differentiated; names file and line
└── CaptureError       a model that can't be captured as a graph

Arguments that make no sense in themselves (0 slots, a negative cost) are a ``ValueError``.
"""

from __future__ import annotations


class PebblingError(Exception):
    """Base of all errors of pebbling."""


class BudgetError(PebblingError):
    """The budget is too small; ``minimum`` is the smallest one that works, in the same unit."""

    def __init__(self, message: str, minimum: float | None = None) -> None:
        super().__init__(message)
        self.minimum = minimum


class ScheduleError(PebblingError):
    """A schedule broke a rule; ``index`` is the position of the action in the stream."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class StoreError(PebblingError):
    """A snapshot could not be kept or brought back."""


class CorruptSnapshot(StoreError):
    """What was read is not what was written."""


class StoreFull(StoreError):
    """There is no room for one more snapshot."""


class DamagedFile(StoreError, ValueError):
    """A file with a plan, a graph or a report is not as it was saved."""


class ReplayError(PebblingError):
    """A replayed step gave another result than it gave the first time."""


class ResumeError(PebblingError):
    """The interrupted run on disk is not the run that was asked for."""


class SourceError(PebblingError):
    """A Python function that can't be checkpointed or differentiated; the message names file and line."""


class CaptureError(PebblingError):
    """A model that can't be captured as a graph."""
