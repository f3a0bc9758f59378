"""Differentiated values that a loop uses without being given them.

A loop runs on plain values; if a result is traced all the same, the step has reached a traced value
through a closure, a global or an attribute. Its derivative would be lost, so it is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ..errors import SourceError
from ..tree import flatten
from ..tree.reach import GENERATED
from .frameworks import Framework
from .program import Program


def refuse_traced(
    framework: Framework, program: Program, leaves: Sequence[Any], name: Callable[[int], str], level: int
) -> None:
    """Refuse leaves that are followed by the derivative of that level, or by one inside it."""
    for place, leaf in enumerate(leaves):
        if framework.level(leaf) >= level:
            _refuse(program, name(place), lambda value: framework.level(value) >= level)


def _refuse(program: Program, leaf: str, traced: Callable[[Any], bool]) -> NoReturn:
    names = sorted({name for function in program.functions() for name in _traced_names(function, traced, 2)})
    found = f"{', '.join(names)}, which" if names else "a value that"
    raise SourceError(
        f"{leaf} of the loop over {program.where()} depends on {found} is being differentiated and was not passed to "
        "the loop: its derivative would be lost. Pass it as one of the loop's arguments, or cut it off with "
        "stop_gradient"
    )


def _traced_names(function: Any, traced: Callable[[Any], bool], depth: int) -> Iterator[str]:
    for name, value in _reached(function):
        if any(traced(leaf) for leaf in _leaves(value)):
            yield name
        elif depth and (hasattr(value, "__code__") or hasattr(value, "__func__")):
            yield from _traced_names(value, traced, depth - 1)


def _reached(function: Any) -> Iterator[tuple[str, Any]]:
    """The names that a function can reach besides its arguments, with their values."""
    owner = getattr(function, "__self__", None)
    if owner is not None and hasattr(owner, "__dict__"):
        yield from ((f"self.{name}", value) for name, value in vars(owner).items())
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        if name.startswith(GENERATED):
            continue
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from zip(reversed(code.co_varnames[: code.co_argcount]), reversed(function.__defaults__ or ()))


def _leaves(value: Any) -> list[Any]:
    leaves, structure = flatten(value)
    if structure is None and hasattr(value, "__dict__") and not callable(value) and not isinstance(value, type):
        return [leaf for part in vars(value).values() for leaf in flatten(part)[0]]
    return leaves
