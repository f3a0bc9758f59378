"""What a commit says about a run, read from a disk that anybody may have written to: each part is what it must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ..errors import ResumeError
from .run import OVER

_NAME = re.compile(r"[0-9a-f]{12}")


def checked(entry: Any, path: str) -> dict[str, Any]:
    """The entry, or a ``ResumeError`` that names the part that can't be."""
    if not isinstance(entry, dict) or entry.keys() != _PARTS.keys():
        raise ResumeError(_no_sense(path, "its parts are not those of this version"))
    for name, is_right in _PARTS.items():
        if not is_right(entry[name]):
            raise ResumeError(_no_sense(path, f"{name} is {str(entry[name])[:60]}"))
    return entry


def _no_sense(path: str, why: str) -> str:
    return (
        f"the interrupted run in {path} can't go on: what it says of itself makes no sense ({why}). Remove it with "
        f"`pebbling clean {path}` to start anew"
    )


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _text(value: Any) -> bool:
    return type(value) is str


def _seconds(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and value >= 0


def _wholes(count: int | None = None) -> Callable[[Any], bool]:
    def is_right(value: Any) -> bool:
        return isinstance(value, list | tuple) and count in (None, len(value)) and all(map(_whole, value))

    return is_right


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_text, value))


def _table(key: Callable[[Any], bool], content: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_right(value: Any) -> bool:
        return type(value) is dict and all(key(name) and content(held) for name, held in value.items())

    return is_right


_PARTS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: _text(value) and _NAME.fullmatch(value) is not None,
    "parts": _table(_text, _text),
    "number": _whole,
    "phase": lambda value: value in ("sweep", "way back", OVER),
    "schedule": lambda value: value is None or isinstance(value, tuple),
    "final": lambda value: type(value) is bool,
    "index": _whole,
    "at": _whole,
    "steps": _whole,
    "table": _table(_wholes(2), _whole),
    "tapes": _wholes(),
    "counts": _wholes(5),
    "compared": _whole,
    "seconds": _table(lambda name: name in ("advance", "reverse", "store"), _seconds),
    "target": lambda value: value is None or (type(value) is int and value >= -1),
    "seen": _table(_whole, _texts),
}
