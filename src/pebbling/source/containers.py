"""The objects that are taken apart to find the arrays in them, and how each is made again.

Lists, dicts, tuples, deques, instances of classes written in Python (dataclasses among them), and
what functions carry with them: closure cells, the objects of methods, partial arguments. Subclasses of the
built-in containers, and classes that say themselves how they are copied, are leaves.
"""

from __future__ import annotations

import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

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
    if issubclass(cls, tuple):
        return _NAMED if hasattr(cls, "_fields") and cls.__bases__ == (tuple,) else None
    if issubclass(cls, type | enum.Enum | BaseException | types.ModuleType):
        return None
    for base in cls.__mro__[:-1]:
        if not base.__flags__ & _HEAP or base.__module__.partition(".")[0] in _FOREIGN:
            return None
        if any(name in vars(base) for name in ("__deepcopy__", "__copy__", "__array__")):
            return None
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _COPIED_BY):
        return None
    return _INSTANCE


_FOREIGN = frozenset({"numpy", "pebbling", "torch", "jax", "jaxlib", "autograd", "scipy", "builtins"})


def _slots(cls: type) -> list[str]:
    found: list[str] = []
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def _attributes(value: Any) -> tuple[list[Any], tuple[str, ...]]:
    held = getattr(value, "__dict__", None)
    slots = [name for name in _slots(type(value)) if hasattr(value, name)]
    names = (*slots, *(held or ()))
    return [getattr(value, name) if name in slots else held[name] for name in names], names  # type: ignore[index]


def _set_attributes(value: Any, names: tuple[str, ...], children: Sequence[Any]) -> None:
    held = getattr(value, "__dict__", None)
    slots = _slots(type(value))
    if held is not None:
        held.clear()
    for name in slots:
        if hasattr(value, name) and name not in names:
            object.__delattr__(value, name)
    for name, child in zip(names, children):
        if held is not None and name not in slots:
            held[name] = child
        else:
            object.__setattr__(value, name, child)


def _fill_list(value: Any, _: Any, children: Sequence[Any]) -> None:
    value[:] = children


def _fill_deque(value: Any, _: Any, children: Sequence[Any]) -> None:
    value.clear()
    value.extend(children)


def _fill_dict(value: Any, keys: Any, children: Sequence[Any]) -> None:
    value.clear()
    for key, child in zip(keys, children):
        dict.__setitem__(value, key, child)


def _cell_parts(cell: CellType) -> tuple[list[Any], bool]:
    try:
        return [cell.cell_contents], True
    except ValueError:
        return [], False


def _fill_cell(cell: CellType, full: bool, children: Sequence[Any]) -> None:
    if full:
        cell.cell_contents = children[0]


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


_LIST = Container(lambda value: (value, None), lambda cls, _: cls(), _fill_list)
_DEQUE = Container(lambda value: (list(value), value.maxlen), lambda cls, limit: cls(maxlen=limit), _fill_deque)
_DICT = Container(lambda value: (list(value.values()), tuple(value)), lambda cls, _: cls(), _fill_dict)
_DEFAULT = Container(
    lambda value: (list(value.values()), (value.default_factory, *value)),
    lambda cls, rest: cls(rest[0]),
    lambda value, rest, children: _fill_dict(value, rest[1:], children),
)
_TUPLE = Container(lambda value: (value, None), None, lambda cls, _, children: tuple(children), mutable=False)
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
    OrderedDict: _DICT,
    Counter: _DICT,
    defaultdict: _DEFAULT,
    tuple: _TUPLE,
    types.SimpleNamespace: _NAMESPACE,
    CellType: _CELL,
    FunctionType: _FUNCTION,
    MethodType: _METHOD,
    types.BuiltinMethodType: _BOUND,
    types.MethodWrapperType: _BOUND,
    partial: _PARTIAL,
}
