"""What a function does, as far as its code and the values that it refers to can tell.

Followed are closures, defaults, partial arguments, attributes of the object of a bound method,
globals that the code names, and functions among all these, but for those of the standard library,
of installed packages and of this one. Left out are variables that the function itself assigns (a counter that
is ``nonlocal``), and what lies inside objects of other classes.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..tree import fingerprint, flatten, kind_of
from ..tree.leaves import OTHER, PLAIN

EMPTY = "empty"
"""Of a container that holds nothing yet: a log or a cache, which running fills."""
_ASSIGNS = {"STORE_DEREF", "STORE_GLOBAL", "DELETE_DEREF", "DELETE_GLOBAL"}
_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)


def uses(function: Any, name: str) -> dict[str, str]:
    """Digests of the code of ``function`` and of all that it refers to, by what each is called."""
    found: dict[str, str] = {}
    _follow(function, name, "", found, set())
    return found


def _follow(value: Any, name: str, where: str, found: dict[str, str], seen: set[int]) -> None:
    """Note one value, which is called ``name`` in the function ``where``."""
    title = f"{name} in {where}" if where else name
    value = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None) or value
    if isinstance(value, types.FunctionType):
        if id(value) in seen or (where and value.__code__.co_filename.startswith(_LIBRARIES)):
            return
        seen.add(id(value))
        found[f"the code of {title}"] = _digest(_code(value.__code__))
        for inner, content in _referred(value):
            _follow(content, inner, name, found, seen)
    elif isinstance(value, types.MethodType):
        _follow(value.__func__, name, where, found, seen)
        for attribute, content in getattr(value.__self__, "__dict__", {}).items():
            _note(content, f"self.{attribute} in {name}", found)
    elif isinstance(value, functools.partial):
        _follow(value.func, name, where, found, seen)
        _note([value.args, value.keywords], f"arguments of {title}", found)
    elif not where and isinstance(getattr(value, "__call__", None), types.MethodType):  # noqa: B004
        _follow(value.__call__, name, where, found, seen)
    else:
        _note(value, title, found)


def _note(value: Any, title: str, found: dict[str, str]) -> None:
    """Note the digest of a value if it is made of numbers, text and arrays; else of which class it is."""
    if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return
    if isinstance(value, set | frozenset):
        value = sorted(map(repr, value))
    if isinstance(value, list | dict) and not value:
        found[title] = EMPTY
        return
    kinds = [kind_of(leaf) for leaf in flatten(value)[0]]
    if any(kind is OTHER or callable(leaf) for kind, leaf in zip(kinds, flatten(value)[0])):
        found[title] = f"{type(value).__module__}.{type(value).__qualname__}"
    else:
        found[title] = repr(value) if all(kind is PLAIN for kind in kinds) else fingerprint(value)


def _referred(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the code of a function refers to by name, but for what it assigns."""
    code = function.__code__
    names, assigned = set[str](), set[str]()
    for inner in _codes(code):
        names |= set(inner.co_names)
        assigned |= {str(op.argval) for op in dis.get_instructions(inner) if op.opname in _ASSIGNS}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            if name not in assigned:
                yield name, cell.cell_contents
        except ValueError:
            continue  # not filled yet
    for name in sorted(names - assigned):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    arguments = code.co_varnames[: code.co_argcount]
    yield from zip(arguments[::-1], (function.__defaults__ or ())[::-1])
    yield from (function.__kwdefaults__ or {}).items()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _code(code: types.CodeType) -> tuple[Any, ...]:
    return (code.co_code.hex(), code.co_names, code.co_varnames, [_constant(item) for item in code.co_consts])


def _constant(item: Any) -> Any:
    if isinstance(item, types.CodeType):
        return _code(item)
    # The order of a set changes from process to process.
    return sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item)


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()
