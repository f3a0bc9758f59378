"""What a body can reach besides its arguments: tensors, modules, and whether all of it was seen.

A body is looked through by its closure, the globals it names, its defaults, ``self`` and the
functions it calls. It is *closed* where everything that was met is known for what it is; then no
tensor can be hidden from it. Where it is not (an object of some class, a module of the user's own),
the graphs of its steps are read as well, see ``graph_ends``.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_DEPTH = 8
_KNOWN = frozenset({"torch", "numpy", "pebbling", *sys.stdlib_module_names})
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), torch.dtype, torch.device)
_ARRAYS = (np.ndarray, np.generic, np.dtype, torch.Size, torch.Generator)


@dataclass
class Place:
    """Where a tensor is found: under a key of a container."""

    container: Any
    key: Any

    def exchange(self, tensor: Any) -> Any:
        """Put a tensor there; what was there before."""
        before = self.container[self.key]
        self.container[self.key] = tensor
        return before


class _Contents:
    """The one place of a closure's cell."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def __getitem__(self, _: str) -> Any:
        return self._cell.cell_contents

    def __setitem__(self, _: str, value: Any) -> None:
        self._cell.cell_contents = value


@dataclass
class Closure:
    """What was found, each thing once."""

    tensors: dict[int, tuple[str, torch.Tensor]] = field(default_factory=dict)
    places: dict[int, list[Place]] = field(default_factory=dict)
    """Where each can be exchanged for another; nowhere if it is in a tuple, or a default."""
    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    compiled: bool = False
    closed: bool = True

    def buffers(self) -> list[tuple[torch.nn.Module, str]]:
        """The buffers of all modules, by owner and name."""
        owners = {id(part): part for module in self.modules.values() for part in module.modules()}
        return [(part, name) for part in owners.values() for name, one in part._buffers.items() if one is not None]


def capture(functions: Iterable[Callable[..., Any]], values: Iterable[Any]) -> Closure:
    """Look through functions, and through values that are handed to them."""
    found = Closure()
    seen: set[int] = set()
    for function in functions:
        _look("body", function, found, seen, _DEPTH, None)
    for value in values:
        if not isinstance(value, torch.Tensor):
            _look("argument", value, found, seen, _DEPTH, None)
    return found


def _look(name: str, value: Any, found: Closure, seen: set[int], depth: int, place: Place | None) -> None:
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        found.tensors[id(value)] = name, value
        found.places[id(value)] = [] if place is None else [place]
    elif isinstance(value, torch.nn.Module):
        _look_module(name, value, found, seen)
    elif isinstance(value, _ARRAYS) or _of_library(value):
        return
    elif depth == 0:
        found.closed = False
    elif isinstance(value, list | tuple | set | frozenset | dict):
        _look_items(name, value, found, seen, depth)
    elif (original := getattr(value, "_torchdynamo_orig_callable", None)) is not None:
        found.compiled = True
        _look(name, original, found, seen, depth, None)
    elif isinstance(value, functools.partial):
        _look_items(name, (value.func, value.args, value.keywords), found, seen, depth)
    elif isinstance(value, types.MethodType):
        _look_items(name, (value.__self__, value.__func__), found, seen, depth)
    elif isinstance(value, types.FunctionType):
        for part, inner, place in _names(value):
            _look(part, inner, found, seen, depth - 1, place)
    else:
        found.closed = False
        for attribute, inner in list(getattr(value, "__dict__", {}).items()):
            _look(f"{name}.{attribute}", inner, found, seen, depth - 1, Place(vars(value), attribute))


def _look_items(name: str, value: Any, found: Closure, seen: set[int], depth: int) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        place = Place(value, key) if isinstance(value, dict | list) else None
        _look(f"{name}[{key!r}]", inner, found, seen, depth - 1, place)


def _look_module(name: str, module: torch.nn.Module, found: Closure, seen: set[int]) -> None:
    found.modules[id(module)] = module
    for path, part in module.named_modules():
        if hasattr(part, "_orig_mod") or part._compiled_call_impl is not None:
            found.compiled = True
        seen.add(id(part))
        own = f"{name}.{path}" if path else name
        for key, tensor in part._parameters.items():
            if tensor is not None:
                found.tensors[id(tensor)] = f"{own}.{key}", tensor
                found.places.setdefault(id(tensor), []).append(Place(part._parameters, key))
        if not type(part).__module__.startswith("torch.nn.modules"):
            found.closed = False
            for key, inner in list(vars(part).items()):
                if not key.startswith("_"):
                    _look(f"{own}.{key}", inner, found, seen, 2, Place(vars(part), key))


def _names(function: types.FunctionType) -> Iterator[tuple[str, Any, Place | None]]:
    """Everything that the code of a function can name besides its arguments."""
    for code in _codes(function.__code__):
        if code is function.__code__:
            for name, cell in zip(code.co_freevars, function.__closure__ or ()):
                try:
                    yield name, cell.cell_contents, Place(_Contents(cell), "")
                except ValueError:  # not bound yet
                    continue
        for name in code.co_names:
            if name not in function.__globals__:
                continue
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType) and not _of_library(value):
                # A module of the user's own: the names that the code takes from it, or might.
                for part in code.co_names:
                    if hasattr(value, part):
                        yield f"{name}.{part}", getattr(value, part), Place(vars(value), part)
            else:
                yield name, value, Place(function.__globals__, name)
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default {index}", value, None
    for name, value in (function.__kwdefaults__ or {}).items():
        yield name, value, None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _of_library(value: Any) -> bool:
    """Whether it is a module, a class or a function of a library that holds no tensors of the user's."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _KNOWN
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, torch.Tensor):
        return False
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc) or _is_op(value):
        # A function that was made by exec() may be of no module at all.
        unknown = "" if isinstance(value, types.FunctionType) else builtins.__name__
        origin = getattr(value, "__module__", None) or unknown
        # A function that was compiled or decorated may carry the user's own inside.
        inner = getattr(value, "_torchdynamo_orig_callable", None) or getattr(value, "__closure__", None)
        return inner is None and origin.partition(".")[0] in _KNOWN
    return False


def _is_op(value: Any) -> bool:
    return isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType | torch._ops.OpOverloadPacket)
