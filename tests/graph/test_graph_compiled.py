"""Compiled loops: what is kept on disk for one version of the code is never run for another."""

from __future__ import annotations

from types import FunctionType
from typing import NamedTuple

from pebbling.graph import compiled

_NUMBER = 3


def _first(x: int) -> int:
    return x + _NUMBER


def _second(x: int) -> int:
    return x - _NUMBER


def test_the_stamp_is_that_of_all_loops_and_their_numbers() -> None:
    stamp = compiled._stamp([_first, _second])
    other = FunctionType(_second.__code__, {"_NUMBER": 4}, "_second")
    assert stamp == compiled._stamp([_first, _second])
    assert len({stamp, compiled._stamp([_first, _first]), compiled._stamp([_first, other])}) == 3


def test_every_compiled_loop_carries_the_stamp() -> None:
    found = compiled.loops()
    assert found.fast
    stamp = compiled._stamp(compiled._LOOPS)
    names = [loop.__name__ for loop in compiled._LOOPS]
    assert [getattr(found, name).py_func.__qualname__ for name in names] == [f"{name}_{stamp}" for name in names]


class _Point(NamedTuple):
    x: int


def test_tuples_of_another_name_make_another_stamp() -> None:
    """What is kept names their classes, and could not be read after one was renamed."""
    renamed = FunctionType(_second.__code__, {"_NUMBER": 3, "_Point": _Point}, "_second")
    named = FunctionType(_second.__code__, {"_NUMBER": 3, "_Place": _Point}, "_second")
    assert compiled._stamp([renamed]) != compiled._stamp([named])
