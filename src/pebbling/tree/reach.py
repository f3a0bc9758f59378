"""What code can reach besides its arguments: one walk, with one policy.

    LOG = []                                # a global
    def drag(u, memory={}):                 # a default
        LOG.append(u)
        return memory.setdefault("k", 0.1) * u

From ``drag`` the walk comes to two *spots*: ``the global LOG`` (held by the module's dict) and ``the defaults of
drag`` (held by the function). Whoever knows the spots can look whether their contents have changed, or exchange
them for others.

- Followed are functions (globals that their code names, inner code included, defaults, keyword defaults, attributes,
  closures), classes with all their bases (methods, properties, attributes), instances (their class, and whatever
  they refer to, as Python's collector of garbage sees it: attributes, elements, partial arguments, wrapped functions),
  and the names that code takes from modules of the user's own.
- Not followed is the code of libraries: the standard library, installed packages, this one. Instances of their
  classes are, for they may hold the user's objects.
- There is no depth at which the walk ends, but a number of objects, ``MOST``, since one logger may lead to all.
"""

from __future__ import annotations

import dis
import gc
import linecache
import os
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

MOST = 20_000
_PATHS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_PATHS.add(os.path.dirname(os.path.dirname(__file__)))
_LIBRARIES = (*[os.path.join(path, "") for path in _PATHS if path], "<frozen", "<__array_function__")
_ENDS: tuple[Any, ...] = (
    ModuleType,
    str,
    bytes,
    int,
    float,
    complex,
    np.ndarray,
    np.generic,
    CodeType,
    types.FrameType,
)
_ENDS += (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc, np.dtype)
_ENDS += (types.GetSetDescriptorType, types.MemberDescriptorType, type(None), types.TracebackType)
_OF_CLASSES = frozenset(
    {"__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__qualname__", "__slots__"}
    | {"__dataclass_fields__", "__dataclass_params__", "__match_args__", "__parameters__", "__orig_bases__"}
    | {"__abstractmethods__", "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__"}
)


class Spot:
    """Where something is held: by whom, under which name there, and how messages call it."""

    __slots__ = ("holder", "name", "words")

    def __init__(self, holder: Any, name: str, words: str) -> None:
        self.holder, self.name, self.words = holder, name, words

    @property
    def key(self) -> tuple[int, str]:
        """The same for the same place."""
        return id(self.holder), self.name

    def get(self) -> Any:
        """What is there; ``ABSENT`` if nothing is."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.name, ABSENT)
        if isinstance(self.holder, type):
            return vars(self.holder).get(self.name, ABSENT)
        if isinstance(self.holder, types.CellType):
            try:
                return self.holder.cell_contents
            except ValueError:
                return ABSENT
        return getattr(self.holder, self.name)

    def put(self, value: Any) -> None:
        """Put something there."""
        if isinstance(self.holder, dict):
            if value is ABSENT:
                self.holder.pop(self.name, None)
            else:
                self.holder[self.name] = value
        elif value is ABSENT:
            if self.get() is not ABSENT:
                delattr(self.holder, self.name if not isinstance(self.holder, types.CellType) else "cell_contents")
        else:
            setattr(self.holder, self.name if not isinstance(self.holder, types.CellType) else "cell_contents", value)


class Absent:
    """The content of a place that holds nothing."""

    def __repr__(self) -> str:
        return "nothing"

    def __reduce__(self) -> str:
        return "ABSENT"  # there is one, whoever copies it


ABSENT = Absent()
GENERATED = "__pebbling"
"""What names begin with in code that ``pebbling.source`` has written."""
HANDLERS = f"{GENERATED}_handlers"
"""A variable of such code where the user's own handles exceptions; there are handlers of ours in all of it."""


class Reach:
    """A walk from functions and objects; iterating gives the spots, each once."""

    def __init__(self, values: Iterable[Any], passed: Iterable[Any] = ()) -> None:
        """``passed`` are functions whose own closures are somebody else's affair, since they are taken apart."""
        self._waiting: list[Any] = list(values)
        self._passed = {id(one) for one in passed}
        self._seen: dict[int, Any] = {}
        self.codes: list[CodeType] = []
        """The code of the functions met so far."""

    def __iter__(self) -> Iterator[Spot]:
        seen, waiting = self._seen, self._waiting
        while waiting and len(seen) < MOST:
            one = waiting.pop()
            if isinstance(one, _ENDS) or id(one) in seen:
                continue
            seen[id(one)] = one
            if isinstance(one, FunctionType):
                if not is_library(one.__code__.co_filename):
                    yield from self._of_function(one)
                elif one.__closure__ or hasattr(one, "__wrapped__"):
                    waiting += gc.get_referents(one.__closure__, one.__dict__)
            elif isinstance(one, type):
                if not of_library(one):
                    yield from self._of_class(one)
            else:
                waiting += gc.get_referents(one)

    def _of_function(self, function: FunctionType) -> Iterator[Spot]:
        code, name = function.__code__, function.__name__
        self.codes.append(code)
        if function.__defaults__:
            yield self._met(Spot(function, "__defaults__", f"the defaults of {name}"))
        if function.__kwdefaults__:
            yield self._met(Spot(function, "__kwdefaults__", f"the defaults of {name}"))
        for attribute in function.__dict__:
            if attribute != "__wrapped__" and not attribute.startswith(GENERATED):
                yield self._met(Spot(function.__dict__, attribute, f"{name}.{attribute}"))
        if id(function) not in self._passed:
            for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
                if not variable.startswith(GENERATED):
                    yield self._met(Spot(cell, "", f"{variable} of {name}"))
        names = names_in(code)
        for used in names:
            if used in function.__globals__:
                value = function.__globals__[used]
                if isinstance(value, ModuleType):
                    yield from self._of_module(value, names)
                else:
                    yield self._met(Spot(function.__globals__, used, f"the global {used}"))

    def _of_module(self, module: ModuleType, used: frozenset[str]) -> Iterator[Spot]:
        if is_library(getattr(module, "__file__", None)):
            return
        for name in used & vars(module).keys():
            if not isinstance(vars(module)[name], ModuleType):
                yield self._met(Spot(vars(module), name, f"{module.__name__}.{name}"))

    def _of_class(self, cls: type) -> Iterator[Spot]:
        self._waiting += cls.__bases__
        if type(cls) is not type:
            self._waiting.append(type(cls))
        for name, value in list(vars(cls).items()):
            if name in _OF_CLASSES or name.startswith("_abc"):
                continue
            if isinstance(value, FunctionType | staticmethod | classmethod | property):
                self._waiting.append(value)
            elif not isinstance(value, _ENDS[9:]):
                yield self._met(Spot(cls, name, f"{cls.__name__}.{name}"))

    def _met(self, place: Spot) -> Spot:
        self._waiting.append(place.get())
        return place


@lru_cache(4096)
def names_in(code: CodeType) -> frozenset[str]:
    """The globals and the attributes that code names, which Python lists together."""
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= names_in(one)
    return frozenset(found)


@lru_cache(4096)
def is_library(filename: str | None) -> bool:
    """Whether code from this file is not the user's own; a module without a file is a library's."""
    if filename is None or filename.startswith(_LIBRARIES):
        return True
    return f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename


def of_library(cls: type) -> bool:
    """Whether a class is not the user's own."""
    if not cls.__flags__ & _MADE_BY_A_STATEMENT:
        return True
    module = sys.modules.get(cls.__module__)
    return module is not None and cls.__module__ != "__main__" and is_library(getattr(module, "__file__", None))


def may_catch(function: Any) -> bool:
    """Whether code that a function runs has a handler of exceptions, so that an error could go unseen."""
    plain = type(function) is FunctionType and function.__closure__ is None
    known = _CATCH.get(function) if plain else None
    if known is None:
        reach = Reach([function])
        for _ in reach:
            pass
        known = any(map(catches, reach.codes))
        if plain:
            _CATCH[function] = known
    return known


_CATCH: weakref.WeakKeyDictionary[FunctionType, bool] = weakref.WeakKeyDictionary()


@lru_cache(4096)
def catches(code: CodeType) -> bool:
    """Whether code has a handler of exceptions, the inner functions' included: only then errors can go unseen."""
    generated = [name for name in (*code.co_varnames, *code.co_freevars) if name.startswith(GENERATED)]
    if HANDLERS in generated or (not generated and _HANDLES in code.co_code[::2]):
        return True
    return any(catches(one) for one in code.co_consts if isinstance(one, CodeType))


def arrays_near(frame: types.FrameType) -> Iterator[set[int]]:
    """The ids of arrays that a line could have written into: those named in it first, then all that its frame reaches.

    Of a view, the arrays whose memory it looks into are among them.
    """
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
    named = set(re.findall(r"\w+", text))
    for values in (
        [value for name, value in {**frame.f_globals, **frame.f_locals}.items() if name in named],
        list(frame.f_locals.values()),
    ):
        yield _arrays(values)


def _arrays(values: list[Any]) -> set[int]:
    found, seen, waiting = set[int](), set[int](), values
    while waiting and len(seen) < MOST:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        while isinstance(one, np.ndarray):
            found.add(id(one))
            one = one.base
        if not isinstance(one, (*_ENDS, type, FunctionType)) and not type(one).__module__.startswith(_OURS):
            waiting += gc.get_referents(one)
    return found


_OURS = f"{__package__.partition('.')[0]}."
_HANDLES = dis.opmap["PUSH_EXC_INFO"]
_MADE_BY_A_STATEMENT = 1 << 9  # Py_TPFLAGS_HEAPTYPE
