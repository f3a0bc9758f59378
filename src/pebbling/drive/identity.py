"""What makes a run this run and no other: named digests of its code, its data and its plan."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

from ..tree import fingerprint, flatten, kind_of, paths
from ..tree.leaves import OTHER, PLAIN


def identity(
    schedule: Any, index: Any, state: Any, seed: Any, functions: dict[str, Callable[..., Any]]
) -> dict[str, str]:
    """Digests by name; two runs with equal ones compute the same."""
    parts = {"schedule": repr(schedule), "steps": repr(index), "shapes and dtypes of the state": _layout(state)}
    parts["values of the initial state"] = fingerprint(state)
    if callable(seed):
        functions = {**functions, "seed": seed}
    else:
        parts["values of the seed"] = fingerprint(seed)
    return parts | {f"code of {name}": code_digest(function) for name, function in functions.items()}


def differences(known: dict[str, str], found: dict[str, str]) -> list[str]:
    """The names under which two identities differ."""
    return [name for name in {**known, **found} if known.get(name) != found.get(name)]


def code_digest(function: Any) -> str:
    """A digest of a function's code and of what it has captured."""
    return hashlib.blake2b(repr(_describe(function, set())).encode(), digest_size=16).hexdigest()


def _layout(state: Any) -> str:
    leaves, structure = flatten(state)
    return "; ".join(
        f"{path}: {getattr(leaf, 'dtype', type(leaf).__name__)} {tuple(getattr(leaf, 'shape', ()))}"
        for path, leaf in zip(paths(structure), leaves)
    )


def _describe(value: Any, seen: set[int]) -> Any:
    if id(value) in seen:
        return "again"
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        captured = [_describe(cell.cell_contents, seen) for cell in value.__closure__ or () if _filled(cell)]
        return ("function", _code(value.__code__), _describe(value.__defaults__, seen), captured)
    if isinstance(value, types.MethodType):
        return ("method", _describe(value.__func__, seen), type(value.__self__).__qualname__)
    if isinstance(value, functools.partial):
        return ("partial", _describe(value.func, seen), _describe(value.args, seen), _describe(value.keywords, seen))
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, list | tuple | dict) or kind_of(value) is not OTHER:
        leaves = flatten(value)[0]
        if all(kind_of(leaf) is not OTHER and not isinstance(leaf, types.FunctionType) for leaf in leaves):
            return ("value", _plain(leaves) or fingerprint(value))
        return [_describe(leaf, seen) for leaf in leaves]
    return ("object", type(value).__module__, type(value).__qualname__)


def _plain(leaves: list[Any]) -> str:
    return repr(leaves) if all(kind_of(leaf) is PLAIN and not callable(leaf) for leaf in leaves) else ""


def _code(code: types.CodeType) -> tuple[Any, ...]:
    constants = [_code(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
    return (code.co_code.hex(), code.co_names, code.co_varnames, constants)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
