"""How many bytes a piece of code allocates at its peak, measured without disturbing who else measures.

Python traces the memory of the whole process, not of one thread. So one measurement waits for another, and a run
that plans with what it has measured is alone for as long as it lasts: a second one would take the first one's
arrays for its own.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from types import TracebackType
from typing import NoReturn, Self

import numpy as np

from ..errors import PebblingError

_PATIENCE = 20.0  # seconds that a measurement waits for another one, which may wait for this thread
_MEASURING = threading.RLock()
_ALONE: Counter[int] = Counter()


class Alone:
    """A run within a budget in bytes; those of other threads are refused until it is over."""

    def __enter__(self) -> Self:
        with _MEASURING:
            _refuse_beside_others()
            _ALONE[threading.get_ident()] += 1
        return self

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        _ALONE[thread] -= 1
        if not _ALONE[thread]:
            del _ALONE[thread]


class TracedMemory:
    """A context that measures with ``tracemalloc``; ``peak`` and ``held`` are bytes above the start."""

    peak = 0
    held = 0

    def __enter__(self) -> Self:
        if not _MEASURING.acquire(timeout=_PATIENCE):
            _refuse("is measured at this moment")
        try:
            _refuse_beside_others()
        except BaseException:
            _MEASURING.release()
            raise
        self._mine = not tracemalloc.is_tracing()
        if self._mine:
            tracemalloc.start()
        self._start, self._peak_before = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now, peak = tracemalloc.get_traced_memory()
        self.peak, self.held = max(0, peak - self._start), max(0, now - self._start)
        if self._mine:
            tracemalloc.stop()
        elif self._peak_before > peak:
            # The caller's own peak was higher: reach it again, without touching the pages.
            np.empty(self._peak_before - now, np.uint8)
        _MEASURING.release()


def _refuse_beside_others() -> None:
    if any(thread != threading.get_ident() for thread in list(_ALONE)):
        _refuse("runs within memory= at this moment")


def _refuse(doing: str) -> NoReturn:
    raise PebblingError(
        f"another thread {doing}, and Python measures the memory of all threads together: run one after the other, "
        "in processes of their own, or give slots= instead of memory="
    )
