"""Why JAX can't trace a step of a plain Python loop, in words of the user's own source.

What JAX raises names its tracers; what is raised here names file and line, what the line asks for, and
what to write instead. Errors of the user's own are handed on as they are.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from jax import errors

from ...errors import SourceError

_AHEAD = "a loop is compiled before any of its values is known"
_BY_TYPE: list[tuple[type[Exception], str, str]] = [
    (
        errors.TracerBoolConversionError,
        f"the line decides by a value that JAX traces (if, break, return, and, or, not, assert), and {_AHEAD}",
        "use jnp.where or jax.lax.cond; to end a loop early, write if …: break with nothing but new values of names "
        "before the break, or put the condition into the head of a while loop (while jnp.abs(r) > tol and k < most)",
    ),
    (
        errors.TracerIntegerConversionError,
        "the line uses an integer that JAX traces, such as the index of a loop, as a Python int "
        f"(range(…), an element of a list, a length), and {_AHEAD}",
        "take elements of arrays (jnp.stack(xs)[i]), loop over the elements themselves (for x in xs), and for bounds "
        "that are traced use pebbling.jax.fori_loop",
    ),
    (
        errors.TracerArrayConversionError,
        "the line hands a value that JAX traces to NumPy",
        "use jax.numpy (jnp.sin, x = x.at[i].set(…)), and jnp.asarray of NumPy arrays that are indexed",
    ),
    (
        errors.NonConcreteBooleanIndexError,
        "the line selects by a mask, and how many elements that gives is not known before the loop runs",
        "use jnp.where(mask, x, 0)",
    ),
    (
        errors.ConcretizationTypeError,
        f"the line asks for the number in an array that JAX traces (float(), int(), .item(), math), and {_AHEAD}",
        "keep it an array, and use jax.numpy",
    ),
    (
        errors.UnexpectedTracerError,
        "a value of one iteration was kept in an object that the loop does not name",
        "carry it in a variable of the loop",
    ),
]
_BY_TEXT: list[tuple[type[Exception], str, str, str]] = [
    (
        TypeError,
        "JAX arrays are immutable",
        "the line writes into an array, and those of JAX can't be changed",
        "write x = x.at[i].set(value), or x = x.at[i].add(value)",
    ),
    (
        TypeError,
        "concrete values",
        "the line makes an array whose shape is not known before the loop runs",
        "give it a shape of Python ints",
    ),
    (
        TypeError,
        "unhashable type",
        "the line uses a value that JAX traces as a key",
        "use Python values for keys, or an array and .at[i].set(…)",
    ),
    (
        TypeError,
        "unsupported format string",
        "the line formats a value that JAX traces",
        'use jax.debug.print("{x}", x=x)',
    ),
    (
        ValueError,
        "read-only",
        "the line writes into a NumPy array, which would happen once, when the loop is compiled",
        "make it a JAX array before the loop, and write x = x.at[i].set(value)",
    ),
    (
        ValueError,
        "setting an array element with a sequence",
        "the line writes a value that JAX traces into a NumPy array",
        "make it a JAX array before the loop, and write x = x.at[i].set(value)",
    ),
]


def explained(error: BaseException, function: Callable[..., Any], where: str) -> BaseException:
    """The ``SourceError`` for what JAX refused in the code of ``function``; any other error as it is."""
    found = next((words for kind, *words in _BY_TYPE if isinstance(error, kind)), None)
    found = found or next(
        (words for kind, text, *words in _BY_TEXT if isinstance(error, kind) and text in str(error)), None
    )
    if found is None:
        return error
    reason, way_out = found
    place, line = _line(error, function, where)
    made = SourceError(f"{place}: {reason}: {way_out}{line}")
    made.__cause__ = error
    return made


def _line(error: BaseException, function: Callable[..., Any], where: str) -> tuple[str, str]:
    """The innermost line of the function's own file that the error went through, and what it says."""
    name = function.__code__.co_filename
    trace, found = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            found = trace.tb_lineno
        trace = trace.tb_next
    if found is None:
        return where, ""
    text = linecache.getline(name, found).strip()
    return f"{name}:{found}", f"\n    {text}" if text else ""
