"""A trial of user code that leaves nothing behind, where that can be seen beforehand.

What a reversal allocates is known once it has run, and it can't be run for a trial if it may write into something:
a second ``gradient += ...`` would be silently wrong. So all that its code can reach is looked at first.

- Arrays are locked for as long as the trial takes. If the code writes into one, the trial ends there, without a result.
- Names, attributes and the contents of lists, dicts and sets are put back as they were.
- Code that can reach anything else is not tried at all: random generators, files, other libraries than NumPy and
  SciPy, arrays of other frameworks, ``print``.
"""

from __future__ import annotations

import dis
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..tree.reach import ABSENT, MOST, Spot, is_library, names_in, of_library

Found = TypeVar("Found")

_FREE = (int, float, complex, str, bytes, range, slice, type(None), type(...), np.generic, np.dtype, np.ufunc)
_PURE = frozenset({"numpy", "scipy", "math", "cmath", "operator", "functools", "itertools", "builtins", "typing"})
_BARRED = frozenset(
    {"print", "open", "input", "exec", "eval", "setattr", "delattr", "globals", "vars", "__import__", "random", "rvs"}
    | {"save", "savez", "savez_compressed", "savetxt", "load", "memmap", "tofile", "seterr", "warn"}
)


def tried(codes: list[Callable[..., Any]], trial: Callable[[], Found]) -> Found | None:
    """What ``trial`` gives, which calls ``codes``; ``None`` if they may change something, or fail."""
    kept = _Kept()
    if not kept.take(codes):
        return None
    try:
        with kept.locked(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trial()
    except Exception:  # It is the trial that went wrong, perhaps because of what it was given.
        return None
    finally:
        kept.put_back()


class _Kept:
    """All that code can reach, as it was."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._spots: list[tuple[Spot, Any]] = []
        self._contents: list[tuple[Any, Any]] = []
        self._seen: dict[int, Any] = {}

    def take(self, values: list[Any]) -> bool:
        """Remember what these objects reach; false if that is more than can be put back."""
        waiting = list(values)
        while waiting:
            one = waiting.pop()
            if id(one) in self._seen or isinstance(one, _FREE):
                continue
            self._seen[id(one)] = one
            found = self._inside(one)
            if found is None or len(self._seen) > MOST:
                return False
            waiting += found
        return True

    def _inside(self, one: Any) -> list[Any] | None:
        """What an object holds; ``None`` if it can't be known or put back."""
        cls = type(one)
        if cls is np.ndarray:
            self._arrays[id(one)] = one
            return None if one.dtype.hasobject else [one.base]
        if cls in (tuple, frozenset):
            return list(one)
        if cls in (list, set, dict):
            self._contents.append((one, cls(one)))
            return [*one, *one.values()] if cls is dict else list(one)
        if cls is types.FunctionType:
            return self._function(one)
        if cls is types.MethodType:
            return [one.__self__, one.__func__]
        if cls is types.BuiltinFunctionType:
            return [one.__self__]
        if cls is partial:
            return [one.func, one.args, one.keywords]
        if isinstance(one, types.ModuleType):
            return [] if one.__name__.partition(".")[0] in _PURE else None
        if isinstance(one, type):
            return [] if of_library(one) else self._class(one)
        if hasattr(one, "__dict__") and not any(of_library(base) for base in cls.__mro__[:-1]):
            return [cls, vars(one)]  # an instance of a class of the user's own
        return None

    def _function(self, function: types.FunctionType) -> list[Any] | None:
        code = function.__code__
        if is_library(code.co_filename):
            return [] if (function.__module__ or "").partition(".")[0] in _PURE else None
        names = names_in(code)
        if names & _BARRED or _imports(code):
            return None
        spots = [Spot(cell, "", name) for name, cell in zip(code.co_freevars, function.__closure__ or ())]
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType) and not is_library(getattr(value, "__file__", None)):
                spots += [Spot(vars(value), inner, inner) for inner in names & vars(value).keys()]
            else:
                spots.append(Spot(function.__globals__, name, name))
        self._spots += [(spot, spot.get()) for spot in spots]
        held = [value for spot, value in self._spots[len(self._spots) - len(spots) :] if value is not ABSENT]
        return [*held, function.__defaults__, function.__kwdefaults__, vars(function)]

    def _class(self, cls: type) -> list[Any]:
        own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        self._spots += [(Spot(cls, name, name), value) for name, value in own.items()]
        parts = [getattr(value, "__func__", value) for value in own.values()]
        parts += [part for value in parts if isinstance(value, property) for part in (value.fget, value.fset)]
        return [*[part for part in parts if not isinstance(part, _MEMBERS)], *cls.__bases__]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nothing can be written into the arrays."""
        unlocked = [array for array in self._arrays.values() if array.flags.writeable]
        try:
            for array in unlocked:
                array.setflags(write=False)
            yield
        finally:
            # A view can be unlocked only after what it looks into.
            for array in sorted(unlocked, key=lambda one: one.base is not None):
                array.setflags(write=True)

    def put_back(self) -> None:
        """Names, attributes and contents as they were."""
        for spot, value in self._spots:
            if spot.get() is not value:
                spot.put(value)
        for one, content in self._contents:
            if type(one) is list:
                one[:] = content
            elif _differs(one, content):
                one.clear()
                one.update(content)


_MEMBERS = (property, types.GetSetDescriptorType, types.MemberDescriptorType)


def _imports(code: types.CodeType) -> bool:
    """Whether code brings in modules while it runs."""
    if any(each.opname == "IMPORT_NAME" for each in dis.get_instructions(code)):
        return True
    return any(_imports(one) for one in code.co_consts if isinstance(one, types.CodeType))


def _differs(one: Any, content: Any) -> bool:
    if isinstance(one, set):
        return {id(each) for each in one} != {id(each) for each in content}
    return len(one) != len(content) or any(
        key is not other or one[key] is not content[other] for key, other in zip(one, content)
    )
