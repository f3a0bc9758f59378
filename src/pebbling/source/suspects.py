"""Which arrays code could have written into when NumPy found one of them locked."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from numpy import ndarray

from .graph import Taken


def suspects(trace: TracebackType | None) -> Iterator[set[int]]:
    """The ids of arrays, the innermost frame first: those named in its line, then all that it reaches."""
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    every: set[int] = set()
    for frame, line in reversed(frames):
        text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
        named = set(re.findall(r"\w+", text))
        yield _reached([value for name, value in frame.f_locals.items() if name in named])
        every |= _reached(frame.f_locals.values())
        yield set(every)


def _reached(values: Iterable[Any]) -> set[int]:
    """Arrays, and those whose memory they look into."""
    found: set[int] = set()
    for value in values:
        taken = Taken({})
        try:
            taken.take(value)
        except Exception:  # an object that can't be looked into tells nothing
            continue
        for one in taken.objects:
            if hasattr(one, "dtype"):
                found.add(id(one))
            while isinstance(one, ndarray):
                found.add(id(one))
                one = one.base
    return found
