"""Functions and generators that outlive the iteration in which they were made.

Plain Python gives all of them the same variables, which go on changing. A replay would give each its
own, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FunctionType, GeneratorType
from typing import Any

from ..errors import SourceError
from .facts import Facts


def codes_in(code: CodeType) -> set[CodeType]:
    """The code of functions and generators that code makes."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {*inner, *[two for one in inner for two in codes_in(one)]}


def check_escape(facts: Facts, objects: Iterable[Any], codes: set[CodeType]) -> None:
    """Refuse functions and generators with that code and variables of their own."""
    for one in objects:
        if isinstance(one, FunctionType):
            escaped = bool(one.__closure__) and one.__code__ in codes
        else:
            escaped = isinstance(one, GeneratorType) and one.gi_code in codes
        if escaped:
            raise SourceError(
                f"{facts.where}: {one.__name__!r} is made in an iteration of the loop and kept beyond it, and a replay "
                "would give it other variables: make it before the loop, or call it in the iteration"
            )
