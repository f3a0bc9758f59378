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
import enum
import functools
import gc
import linecache
import os
import random
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

MOST = 20_000
_PATHS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_PATHS.add(os.path.dirname(os.path.dirname(__file__)))
_LIBRARIES = (*[os.path.join(path, "") for path in _PATHS if path], "<frozen", "<__array_function__")
_OF_LANGUAGE: tuple[Any, ...] = (
    *(types.FrameType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc),
    *(np.dtype, types.GetSetDescriptorType, types.MemberDescriptorType, type(None), types.TracebackType),
)
_LEAST = frozenset({str, bytes, int, float, complex, bool, type(None), np.float64, np.int64, CodeType})
_ENDS: tuple[Any, ...] = (ModuleType, *_LEAST, np.ndarray, np.generic, *_OF_LANGUAGE)
_LEAVES = (np.ndarray, set, bytearray, np.random.Generator, np.random.RandomState, random.Random)
_MEMOS = type(functools.lru_cache(len))
_FRAMEWORKS = frozenset({"pebbling", "jax", "jaxlib", "autograd"})
FOLLOWED, MODULE, LEAF, END, WALKED = "followed", "module", "leaf", "end", "walked"
"""Values that a derivative follows: behind them is all that has been computed; modules of torch; what is looked at as a
whole; what holds nothing of the user's; everything else."""
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_DEREF", "DELETE_DEREF"})
_BEHIND_THE_BACK = frozenset(
    {"setattr", "delattr", "globals", "vars", "exec", "eval", "__dict__", "__setattr__", "update_wrapper", "modules"}
)
ANY = "*"
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
        """Put something there; ``ABSENT`` takes away what is there."""
        if value is ABSENT:
            self.remove()
        elif isinstance(self.holder, dict):
            self.holder[self.name] = value
        else:
            setattr(self.holder, self._attribute, value)

    def remove(self) -> None:
        """Take away what is there."""
        if isinstance(self.holder, dict):
            self.holder.pop(self.name, None)
        elif self.get() is not ABSENT:
            delattr(self.holder, self._attribute)

    @property
    def _attribute(self) -> str:
        return "cell_contents" if isinstance(self.holder, types.CellType) else self.name


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

    def __init__(self, values: Iterable[Any], known: Mapping[int, Any] | None = None) -> None:
        """``known`` has what an earlier walk has met, by id: it is not walked again."""
        self._waiting: list[tuple[Any, Any]] = [(one, place) for place, one in enumerate(values)]
        self._known: Mapping[int, Any] = {} if known is None else known
        self.met: dict[int, Any] = {}
        """All objects met so far but arrays, by id."""
        self.leaves: list[tuple[Any, Spot | int]] = []
        """Arrays, sets and generators of random numbers, with where the walk to them began, each time."""
        self.came_from: dict[int, Spot | int] = {}
        """Where the walk to an object began: at a spot, or at one of the values, by its place."""
        self.codes: list[CodeType] = []
        """The code of the functions met so far, without that of libraries."""
        self._spots: set[tuple[int, str]] = set()

    def __iter__(self) -> Iterator[Spot]:
        met, waiting, known = self.met, self._waiting, self._known
        while waiting and len(met) < MOST:
            one, begin = waiting.pop()
            cls: Any = type(one)
            kind = _kind(cls)
            if kind is LEAF or kind is FOLLOWED:
                self.leaves.append((one, begin))
            key = id(one)
            if key in met or key in known:
                continue
            if isinstance(one, BuiltinFunctionType) and not isinstance(one.__self__, ModuleType | type):
                self._wait([one.__self__], begin)
            if kind in (END, FOLLOWED) or (kind is LEAF and not (cls is set or _holds_objects(one))):
                continue
            met[key], self.came_from[key] = one, begin
            if isinstance(one, FunctionType):
                if not is_library(one.__code__.co_filename):
                    yield from self._of_function(one, begin)
                elif one.__closure__ or hasattr(one, "__wrapped__"):
                    self._wait(gc.get_referents(one.__closure__, one.__dict__), begin)
            elif isinstance(one, type):
                if not of_library(one):
                    yield from self._of_class(one, begin)
            elif isinstance(one, _MEMOS):
                self._wait([one.__wrapped__], begin)  # that it remembers makes no difference to what it gives
            elif isinstance(one, weakref.ref):
                self._wait([one()], begin)
            elif kind is MODULE:  # what torch keeps in it is torch's affair
                self._wait([type(one), *one._modules.values()], begin)
            elif kind is LEAF and cls is not set:
                self._wait(one.ravel().tolist(), begin)
            else:
                self._wait(gc.get_referents(one), begin)

    def _wait(self, objects: Iterable[Any], begin: Spot | int) -> None:
        self._waiting += [(one, begin) for one in objects if type(one) not in _LEAST]

    def _of_function(self, function: FunctionType, begin: Spot | int) -> Iterator[Spot]:
        code, name = function.__code__, function.__name__
        self.codes.append(code)
        if function.__defaults__:
            yield from self._spot(function, "__defaults__", f"the defaults of {name}")
        if function.__kwdefaults__:
            yield from self._spot(function, "__kwdefaults__", f"the defaults of {name}")
        for attribute in function.__dict__:
            if attribute != "__wrapped__" and not attribute.startswith(GENERATED):
                yield from self._spot(function.__dict__, attribute, f"{name}.{attribute}")
        if hasattr(function, "__wrapped__"):
            self._wait([function.__wrapped__], begin)
        for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
            if not variable.startswith(GENERATED) and id(cell) not in self.met:
                self.met[id(cell)], self.came_from[id(cell)] = cell, begin
                yield from self._spot(cell, variable, f"{variable} of {name}")
        names = names_in(code)
        for used in names:
            if used in function.__globals__:
                value = function.__globals__[used]
                if isinstance(value, ModuleType):
                    yield from self._of_module(value, names)
                else:
                    yield from self._spot(function.__globals__, used, f"the global {used}")
        for used in stored_in(code) & names - function.__globals__.keys():
            yield from self._spot(function.__globals__, used, f"the global {used}")

    def _of_module(self, module: ModuleType, used: frozenset[str]) -> Iterator[Spot]:
        if is_library(getattr(module, "__file__", None)):
            return
        for name in used & vars(module).keys():
            if not isinstance(vars(module)[name], ModuleType):
                yield from self._spot(vars(module), name, f"{module.__name__}.{name}")

    def _of_class(self, cls: type, begin: Spot | int) -> Iterator[Spot]:
        self._wait(cls.__bases__, begin)
        if type(cls) is not type:
            self._wait([type(cls)], begin)
        for name, value in list(vars(cls).items()):
            if name in _OF_CLASSES or name.startswith("_abc"):
                continue
            if isinstance(value, FunctionType | staticmethod | classmethod | property):
                self._wait([value], begin)
            elif isinstance(cls, enum.EnumType) and isinstance(value, cls):
                self._wait([value], begin)  # it can't be exchanged
            elif not isinstance(value, _OF_LANGUAGE):
                yield from self._spot(cls, name, f"{cls.__name__}.{name}")

    def _spot(self, holder: Any, name: str, words: str) -> Iterator[Spot]:
        if (id(holder), name) not in self._spots:
            self._spots.add((id(holder), name))
            spot = Spot(holder, name, words)
            self._waiting.append((spot.get(), spot))
            yield spot


def _holds_objects(one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.dtype.hasobject and one.dtype.names is None


@lru_cache(4096)
def _kind(cls: Any) -> str:
    """What a walk does with objects of a class."""
    package, names = cls.__module__.partition(".")[0], {base.__name__ for base in cls.__mro__}
    if package != "torch" and "Module" in names and any(base.__module__.startswith("torch.nn") for base in cls.__mro__):
        return MODULE
    if package == "torch":
        return (
            FOLLOWED if "Tensor" in names else LEAF if "Generator" in names else MODULE if "Module" in names else WALKED
        )
    if package in _FRAMEWORKS:
        return FOLLOWED
    return LEAF if issubclass(cls, _LEAVES) else END if issubclass(cls, _ENDS) else WALKED


@lru_cache(4096)
def stored_in(code: CodeType) -> frozenset[str]:
    """The names and attributes that code binds outside of its own variables; ``ANY`` if it could be any."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname in _STORES}
    found |= {ANY} if _BEHIND_THE_BACK & {*code.co_names, *code.co_varnames} else set()
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= stored_in(one)
    return frozenset(found)


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
