"""What a call takes: its result, the peak of its memory, and the memory over time."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_SAMPLES, _EVERY = 20_000, 0.005


@dataclass(frozen=True)
class Watched:
    """A result, bytes at the peak above the start, and (seconds, bytes) while it was computed."""

    result: Any
    peak: int
    curve: np.ndarray

    @property
    def seconds(self) -> float:
        """How long it took, under watch."""
        return float(self.curve[-1, 0])


def watch(call: Callable[[], Any]) -> Watched:
    """Call with Python's memory tracing on, and look at it every five milliseconds."""
    curve = np.zeros((_SAMPLES, 2))  # before tracing begins, so that looking does not count
    done = threading.Event()
    tracemalloc.start()
    try:
        start, begun = tracemalloc.get_traced_memory()[0], time.perf_counter()
        looking = threading.Thread(target=_look, args=(curve, start, begun, done))
        looking.start()
        try:
            result = call()
        finally:
            seconds = time.perf_counter() - begun
            done.set()
            looking.join()
        peak = tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()
    taken = int(np.count_nonzero(curve[:, 0]))
    return Watched(result, peak, np.vstack([[0.0, 0.0], curve[:taken], [seconds, curve[max(taken - 1, 0), 1]]]))


def _look(curve: np.ndarray, start: int, begun: float, done: threading.Event) -> None:
    for sample in curve:
        if done.wait(_EVERY):
            return
        sample[:] = time.perf_counter() - begun, max(0, tracemalloc.get_traced_memory()[0] - start)
