"""The objects that are taken apart to find the arrays in them, and how each is made again.

Lists, dicts, tuples, deques, sets, their subclasses, instances of classes written in Python (dataclasses among them),
and what functions carry with them: closure cells, the objects of methods, partial arguments. Classes of libraries that
say themselves how they are copied are leaves, and so are those written in C.

    class Body: ...
    body.x, body.n = u, 3
    parts(body)             # [u, 3], ("x", "n"): the children, and what else it takes to make it
    fill(body, ("x", "n"), [v, 4])

A container that is not carried is only looked at, to see whether the loop changes it. That can be done with more
objects than can be made again: ``looked_at`` has generators, exceptions, members of enums, variables of a thread.

None of the user's own methods runs when an object is taken apart or made again: they could count how often.
"""

from __future__ import annotations

import enum
import gc
import threading
import types
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from operator import is_
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

from numpy import ndarray

from ..tree.reach import of_library

_ALL = slice(None)
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement
_COPIED_BY = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")


class Container(NamedTuple):
    """How one type is taken apart and made again."""

    parts: Callable[[Any], tuple[Sequence[Any], Any]]
    """Its children, and whatever else it takes to make it, hashable."""
    empty: Callable[[type, Any], Any] | None
    """A new one without children, to be filled; ``None`` where it can't exist without them."""
    fill: Callable[[Any, Any, Sequence[Any]], Any]
    """Give children to an empty one, or to one that has others; or make one, where there is no empty one."""
    mutable: bool = True


def container_of(cls: type) -> Container | None:
    """How a type is taken apart; ``None`` for a leaf."""
    try:
        return _KNOWN[cls]
    except KeyError:
        return _KNOWN.setdefault(cls, _resolve(cls))


def _resolve(cls: type) -> Container | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__bases__ == (tuple,):
        return _NAMED
    if issubclass(cls, type | enum.Enum | BaseException | types.ModuleType):
        return None
    elements = next((_KNOWN[base] for base in cls.__mro__ if base in _BUILT_IN), None)
    for base in cls.__mro__[:-1]:
        if base in _BUILT_IN:
            break
        if not base.__flags__ & _HEAP or base.__module__.partition(".")[0] in _FOREIGN:
            return None
        if "__array__" in vars(base):
            return None
        if of_library(base) and base not in _OPEN and any(name in vars(base) for name in ("__deepcopy__", "__copy__")):
            return None
    if of_library(cls) and any(getattr(cls, name, None) is not getattr(object, name, None) for name in _COPIED_BY):
        return None
    return _INSTANCE if elements is None else _extended(elements)


ITERATORS: tuple[Any, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_OPEN = (UserDict, UserList, ChainMap)
"""Classes of the standard library that say how they are copied, and hold nothing but what is seen."""
_FOREIGN = frozenset({"numpy", "pebbling", "torch", "jax", "jaxlib", "autograd", "scipy", "numba", "builtins"})


class Members:
    """What a set holds: a value, of which nobody needs a copy. The objects in it stay the same ones."""

    __slots__ = ("_sorted", "members")

    def __init__(self, members: Iterable[Any]) -> None:
        self.members = tuple(members)
        self._sorted: tuple[Any, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and set(self.members) == set(other.members)

    def __hash__(self) -> int:
        return len(self.members)

    def __deepcopy__(self, memo: Any) -> Members:
        return self

    def __reduce__(self) -> Any:
        """Something that is equal for equal members, in whatever order; it is never made again from that."""
        if self._sorted is None:
            self._sorted = tuple(sorted(map(_shown, self.members)))
        return Members, (self._sorted,)


def _shown(member: Any) -> tuple[str, str]:
    known = isinstance(member, str | bytes | int | float | complex | tuple | frozenset | enum.Enum | None)
    return type(member).__name__, repr(member) if known else str(id(member))


def of_class(value: Any, cls: type) -> Any:
    """An object, which a program may have given another class, with this one."""
    if type(value) is not cls:
        value.__class__ = cls
    return value


def same_parts(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether two containers have the same children."""
    if len(one) != len(two):
        return False
    return all(map(is_, one, two)) or all(
        first is second or (type(first) is Members and first == second) for first, second in zip(one, two)
    )


def _extended(elements: Container) -> Container:
    """How a subclass of a built-in container is taken apart: into its elements and its attributes."""

    def parts(value: Any) -> tuple[list[Any], Any]:
        inner, rest = elements.parts(value)
        attributes, names = _attributes(value)
        return [*inner, *attributes], (rest, len(inner), *names)

    def fill(value: Any, rest: Any, children: Sequence[Any]) -> None:
        elements.fill(value, rest[0], children[: rest[1]])
        _set_attributes(value, rest[2:], children[rest[1] :])

    def make(cls: Any, rest: Any, children: Sequence[Any]) -> Any:
        value = tuple.__new__(cls, children[: rest[1]])
        _set_attributes(value, rest[2:], children[rest[1] :])
        return value

    if elements.empty is None:
        return Container(parts, None, make, mutable=False)
    empty = elements.empty
    return Container(parts, lambda cls, rest: empty(cls, rest[0]), fill)


@lru_cache(4096)
def _slots(cls: Any) -> tuple[str, ...]:
    found: list[str] = []
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        owner = base.__name__.lstrip("_")
        for name in [slots] if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{owner}{name}" if private else name)
    return tuple([name for name in found if name not in ("__dict__", "__weakref__")])


def _slots_of(value: Any) -> tuple[str, ...]:
    cls: Any = type(value)
    return _slots(cls)


def _held(value: Any) -> dict[str, Any] | None:
    if isinstance(value, threading.local):
        return value.__dict__  # of this thread
    try:
        held: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def _slot(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _EMPTY


_EMPTY = object()


def _attributes(value: Any) -> tuple[list[Any], tuple[str, ...]]:
    held = _held(value) or {}
    slots = [(name, one) for name in _slots_of(value) if (one := _slot(value, name)) is not _EMPTY]
    return [*[one for _, one in slots], *held.values()], (*[name for name, _ in slots], *held)


def _set_attributes(value: Any, names: tuple[str, ...], children: Sequence[Any]) -> None:
    held = _held(value)
    slots = _slots_of(value)
    if held is not None:
        held.clear()
    for name in slots:
        if name not in names and _slot(value, name) is not _EMPTY:
            object.__delattr__(value, name)
    for name, child in zip(names, children):
        if name in slots:
            object.__setattr__(value, name, child)
        elif held is not None:
            held[name] = child


def _fill_list(value: Any, _: Any, children: Sequence[Any]) -> None:
    list.__setitem__(value, slice(None), children)


def _fill_deque(value: Any, _: Any, children: Sequence[Any]) -> None:
    deque.clear(value)
    deque.extend(value, children)


def _make_deque(cls: Any, limit: Any) -> Any:
    value = deque.__new__(cls)
    deque.__init__(value, (), limit)
    return value


def _fill_dict(value: Any, keys: Any, children: Sequence[Any]) -> None:
    dict.clear(value)
    for key, child in zip(keys, children):
        dict.__setitem__(value, key, child)


def _fill_ordered(value: Any, keys: Any, children: Sequence[Any]) -> None:
    OrderedDict.clear(value)
    for key, child in zip(keys, children):
        OrderedDict.__setitem__(value, key, child)


def _fill_default(value: Any, rest: Any, children: Sequence[Any]) -> None:
    value.default_factory = rest[0]
    _fill_dict(value, rest[1:], children)


def _cell_parts(cell: CellType) -> tuple[list[Any], bool]:
    try:
        return [cell.cell_contents], True
    except ValueError:
        return [], False


def _fill_cell(cell: CellType, full: bool, children: Sequence[Any]) -> None:
    if full:
        cell.cell_contents = children[0]


def _fill_set(value: Any, _: Any, children: Sequence[Any]) -> None:
    set.clear(value)
    set.update(value, children[0].members)


def _fill_elements(value: Any, _: Any, children: Sequence[Any]) -> None:
    for place, child in enumerate(children):
        value.flat[place] = child


def _go_back(iterator: Any, place: tuple[int, ...], _: Any) -> None:
    """Set an iterator to a place where it has been; there is none once it has ended."""
    if place:
        iterator.__setstate__(*place)


def _stays(value: Any, rest: Any, children: Sequence[Any]) -> None:
    """What has gone on can't be taken back: whoever finds that refuses."""


class _Gone:
    """What a weak reference refers to that has nothing to refer to any more."""


class _Pattern:
    """A function without its closure; those made from one function are equal."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def _parts(self) -> tuple[Any, ...]:
        function = self.function
        return function.__code__, id(function.__globals__), id(function.__defaults__), id(function.__kwdefaults__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pattern) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())


def _make_function(cls: Any, pattern: _Pattern, children: Sequence[Any]) -> FunctionType:
    function = pattern.function
    code = function.__code__
    new = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, tuple(children))
    new.__kwdefaults__ = function.__kwdefaults__
    new.__dict__.update(function.__dict__)
    new.__qualname__ = function.__qualname__
    return new


_LIST = Container(lambda value: (list.__getitem__(value, _ALL), None), lambda cls, _: list.__new__(cls), _fill_list)
_DEQUE = Container(lambda value: (list(deque.__iter__(value)), value.maxlen), _make_deque, _fill_deque)
_DICT = Container(
    lambda value: (list(dict.values(value)), tuple(dict.keys(value))), lambda cls, _: dict.__new__(cls), _fill_dict
)
_ORDERED = Container(
    lambda value: (list(OrderedDict.values(value)), tuple(OrderedDict.keys(value))),
    lambda cls, _: OrderedDict.__new__(cls),
    _fill_ordered,
)
_DEFAULT = Container(
    lambda value: (list(dict.values(value)), (value.default_factory, *dict.keys(value))),
    lambda cls, rest: defaultdict.__new__(cls),
    _fill_default,
)
_SET = Container(lambda value: ([Members(set.__iter__(value))], None), lambda cls, _: set.__new__(cls), _fill_set)
_TUPLE = Container(
    lambda value: (tuple.__getitem__(value, _ALL), None), None, lambda cls, _, children: tuple(children), mutable=False
)
_NAMED = Container(
    lambda value: (value, None), None, lambda cls, _, children: tuple.__new__(cls, children), mutable=False
)
_INSTANCE = Container(_attributes, lambda cls, _: object.__new__(cls), _set_attributes)
_NAMESPACE = Container(_attributes, lambda cls, _: cls(), _set_attributes)
_CELL = Container(_cell_parts, lambda cls, _: CellType(), _fill_cell)
_FUNCTION = Container(lambda value: (value.__closure__ or (), _Pattern(value)), None, _make_function, mutable=False)
_METHOD = Container(
    lambda value: ([value.__self__], value.__func__),
    None,
    lambda cls, func, children: cls(func, *children),
    mutable=False,
)
_BOUND = Container(
    lambda value: ([value.__self__], value.__name__),
    None,
    lambda cls, name, children: getattr(children[0], name),
    mutable=False,
)
_WEAK = Container(
    lambda value: ([value()], None), None, lambda cls, _, children: cls(children[0] or _Gone()), mutable=False
)
_PARTIAL = Container(
    lambda value: ([value.func, *value.args, *value.keywords.values()], (len(value.args), *value.keywords)),
    None,
    lambda cls, rest, children: cls(
        *children[: 1 + rest[0]], **dict(zip(rest[1:], children[1 + rest[0] :], strict=True))
    ),
    mutable=False,
)
_KNOWN: dict[type, Container | None] = {
    list: _LIST,
    deque: _DEQUE,
    dict: _DICT,
    OrderedDict: _ORDERED,
    Counter: _DICT,
    defaultdict: _DEFAULT,
    set: _SET,
    tuple: _TUPLE,
    types.SimpleNamespace: _NAMESPACE,
    CellType: _CELL,
    FunctionType: _FUNCTION,
    MethodType: _METHOD,
    types.BuiltinMethodType: _BOUND,
    types.MethodWrapperType: _BOUND,
    partial: _PARTIAL,
    weakref.ref: _WEAK,
}
_BUILT_IN = (list, dict, deque, OrderedDict, Counter, defaultdict, set, tuple)


def looked_at(value: Any) -> Container | None:
    """How it is seen whether an object changes: a container, or another one that can be looked into."""
    if type(value) is ndarray:
        return _ELEMENTS if value.dtype.hasobject else None
    return container_of(type(value)) or _looked_at(type(value))  # type: ignore[arg-type]


@lru_cache(4096)
def _looked_at(cls: Any) -> Container | None:
    if issubclass(cls, threading.local | enum.Enum | BaseException | ndarray):
        return _ATTRIBUTES
    return _LOOKED_AT.get(cls)


def _attributes_of(value: Any) -> tuple[list[Any], Any]:
    held = _held(value) or {}
    own = [value.args] if isinstance(value, BaseException) else []
    return [*own, *held.values()], (len(own), *held)


def _set_attributes_of(value: Any, rest: Any, children: Sequence[Any]) -> None:
    held = _held(value)
    if rest[0]:
        value.args = children[0]
    if held is not None:
        held.clear()
        held.update(zip(rest[1:], children[rest[0] :]))


_ELEMENTS = Container(lambda value: (value.ravel().tolist(), value.shape), None, _fill_elements)
_ATTRIBUTES = Container(_attributes_of, None, _set_attributes_of)
_LOOKED_AT: dict[type, Container] = {
    types.GeneratorType: Container(
        lambda value: (gc.get_referents(value), getattr(value.gi_frame, "f_lasti", None)), None, _stays
    ),
    ContextVar: Container(lambda value: ([value.get(None)], None), None, lambda value, _, last: value.set(*last)),
    **dict.fromkeys(ITERATORS, Container(lambda value: ([], value.__reduce__()[2:]), None, _go_back)),
}
