"""Errors that name the user's line: what was written there, why it can't be differentiated, what to do."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from ...errors import SourceError
from ...refusal import refused

_PACKAGES = Path(np.__file__).parents[1]
_INSIDE = (str(Path(__file__).parents[2]), str(_PACKAGES / "numpy"), str(_PACKAGES / "scipy"))


def refuse(reason: str, way_out: str) -> BaseException:
    """What to raise for the line of user code that is running now: it reaches the user whatever that code catches."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    return refused(SourceError(f"{shown(frame)}{reason}. {way_out}."))


def caller() -> str:
    """The function of SciPy that has called what runs now, as one writes it; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    found = ""
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("scipy."):
            found = f"{_public(module)}.{frame.f_code.co_name}"
        frame = frame.f_back
    return found


def _public(module: str) -> str:
    return ".".join([part for part in module.split(".") if not part.startswith("_")])


def shown(frame: FrameType) -> str:
    """The line that a frame runs: file, number and text."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line, frame.f_globals).strip()
    return f"{name}:{line}: {text}\n" if text else f"{name}:{line}: "


def name_of(func: object) -> str:
    """A NumPy function as one writes it: ``np.linalg.inv``."""
    name = getattr(func, "__name__", repr(func))
    owner = getattr(func, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"{name_of(owner)}.{name}"
    module = getattr(func, "__module__", None) or "numpy"
    if isinstance(func, np.ufunc) and getattr(np, name, None) is not func:
        module = "scipy.special"
    if module.startswith("numpy"):
        return f"np{module.removeprefix('numpy')}.{name}"
    return f"{_public(module)}.{name}"
