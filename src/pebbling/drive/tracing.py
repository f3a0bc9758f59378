"""How many bytes a piece of code allocates at its peak, measured without disturbing who else measures."""

from __future__ import annotations

import tracemalloc
from types import TracebackType
from typing import Self

import numpy as np


class Traced:
    """A context that measures with ``tracemalloc``; ``peak`` and ``held`` are bytes above the start."""

    peak = 0
    held = 0

    def __enter__(self) -> Self:
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
