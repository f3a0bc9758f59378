"""Which arrays code could have written into when NumPy found one of them locked."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator
from traceback import walk_tb
from types import FrameType
from typing import Any

from numpy import ndarray

from .. import loops
from .graph import Taken


def suspects(frames: Iterable[FrameType]) -> Iterator[set[int]]:
    """The ids of arrays, the innermost frame first: those named in its line, then all that it reaches."""
    every: set[int] = set()
    for frame in frames:
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
        named = set(re.findall(r"\w+", text))
        yield _reached([value for name, value in {**frame.f_globals, **frame.f_locals}.items() if name in named])
        every |= _reached(frame.f_locals.values())
        yield set(every)


def frames_of(error: BaseException) -> list[FrameType]:
    """The frames that an error has come through, the innermost first."""
    return [frame for frame, _ in walk_tb(error.__traceback__)][::-1]


def frames_above(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame that is running, and those that have called it, up to the one that runs the loop."""
    while frame is not None and not frame.f_code.co_filename.startswith(_LOOPS):
        yield frame
        frame = frame.f_back


_LOOPS = os.path.dirname(loops.__file__)


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
