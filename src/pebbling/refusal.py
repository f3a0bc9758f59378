"""Refusals that reach the user, whatever stands in between.

A refusal is raised in the middle of the user's code, which may take it for something else: ``try … except
Exception`` goes on without it, NumPy turns it into an error of its own ("setting an array element with a
sequence"), a ``while`` loop ends with it. What came out then would be silently wrong. So the user's code
runs inside a ``Region``, and what refuses says ``raise refused(error)``:

- inside of a region, that raises ``Refused``, which ``except Exception`` does not catch, and the region
  remembers the error;
- where the region ends, however it ends, the error is raised, as itself. If there is another region
  around, it is one inside of that as well.

>>> from pebbling.errors import SourceError
>>> def users():
...     try:
...         raise refused(SourceError("file.py:3: no derivative"))
...     except Exception:
...         return "swallowed"
>>> with Region():
...     users()
Traceback (most recent call last):
pebbling.errors.SourceError: file.py:3: no derivative

NumPy itself refuses to write into arrays that are locked, with a ``ValueError`` that users catch as well.
Who has locked arrays gives the region ``locked``, which says what the error is; where the code that runs
may catch errors (``tree.reach.may_catch``), it is asked at the very line that writes: no flag could tell, for the
array is as it was, and only the program has gone another way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeAlias, TypeGuard

from .errors import ReplayError, SourceError

Locked: TypeAlias = Callable[[ValueError, FrameType], Exception | None]
"""The error for a write into a locked array, from NumPy's and the frame that writes; ``None`` if it is the user's."""


class Refused(BaseException):
    """Carries an error of ours through the user's code."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error: Exception | None = error


class _Open(threading.local):
    """The innermost region of each thread."""

    region: Region | None = None
    watcher: Region | None = None
    """The region that watches, itself or one around it."""


_OPEN = _Open()


def refused(error: Exception) -> BaseException:
    """What to raise so that ``error`` reaches the user."""
    region = _OPEN.region
    if region is None:
        return error
    if region.error is None:
        region.error = error
    return Refused(error)


def withdraw(error: Exception | None) -> None:
    """Forget a refusal that has been dealt with."""
    region, watcher = _OPEN.region, _OPEN.watcher
    if region is not None and error is not None and region.error is error:
        region.error = None
    if watcher is not None and sys.gettrace() is None:
        sys.settrace(watcher._called)  # Python stops tracing when a tracer raises


class Region:
    """A stretch of the user's code out of which every refusal comes."""

    __slots__ = ("_around", "_locked", "_traced_before", "_watches", "error")

    def __init__(self, locked: Locked | None = None, watch: bool = False) -> None:
        """``locked`` explains writes into locked arrays; with ``watch``, also those whose error the code catches."""
        self.error: Exception | None = None
        """What has been refused in it."""
        self._locked, self._watches = locked, watch and locked is not None and _OPEN.watcher is None
        self._around: Region | None = None
        self._traced_before: Any = None

    def __enter__(self) -> Region:
        self._around, _OPEN.region = _OPEN.region, self
        if self._watches:
            self._traced_before, _OPEN.watcher = sys.gettrace(), self
            sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _OPEN.region, self._around = self._around, None
        if self._watches:
            _OPEN.watcher = None
            if sys.gettrace() in (self._called, None):
                sys.settrace(self._traced_before)
        if kind is None and self.error is None:
            return
        found, self.error = self._found(error), None
        if isinstance(error, Refused):
            error.error = None  # the error will refer to its carrier, and a cycle would keep the user's arrays alive
        if found is None or (found is error and _OPEN.region is None):
            return
        if trace is not None and found is not error:
            found = found.with_traceback(trace)
        cause = found.__cause__
        try:
            raise refused(found) from cause
        finally:
            del found, error, trace, cause  # the traceback has this frame, and would keep what they hold alive

    def _found(self, error: BaseException | None) -> Exception | None:
        """What is refused, if something is."""
        if error is not None and not isinstance(error, Exception | Refused):
            return None  # the user wants to stop
        if self.error is None and self._locked is not None and is_locked(error):
            inner: TracebackType | None = error.__traceback__
            while inner is not None and inner.tb_next is not None:
                inner = inner.tb_next
            return None if inner is None else self._locked(error, inner.tb_frame)
        if self.error is None and isinstance(error, SourceError | ReplayError):
            return error
        return self.error or (error.error if isinstance(error, Refused) else None)

    # What Python calls wherever a function begins or an exception comes by, while the region watches.

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        others = None if self._traced_before is None else self._traced_before(frame, event, arg)
        if self._traced_before is None:
            frame.f_trace_lines = False
        elif sys.gettrace() != self._called:
            sys.settrace(self._called)  # some tracers put themselves in our place

        def happens(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal others
            if event == "exception" and _OPEN.region and not _OPEN.region.error and is_locked(arg[1]):
                self._refuse(arg[1], frame)
            others = others and others(frame, event, arg)
            return happens

        return happens

    def _refuse(self, error: ValueError, frame: FrameType) -> None:
        """Ask who has locked the array, the innermost first."""
        region, found = _OPEN.region, None
        while region is not None and found is None:
            found, region = region._locked and region._locked(error, frame), region._around
        if found is not None:
            raise refused(found)


def is_locked(error: Any) -> TypeGuard[ValueError]:
    """Whether NumPy says that an array is read-only."""
    return isinstance(error, ValueError) and "read-only" in str(error)
