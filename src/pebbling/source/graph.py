"""Objects as a shape and flat leaves: taken apart with everything they share, and made again.

Unlike a tree, a graph knows which of its objects are one and the same, cycles included, and which of
them were there before the loop began: those carry a token. In-place changes are only right if both
are kept through snapshots, and the user's own objects get them in the end.

A shape is hashable: per root, ``None`` for a value that can't change, a token for a leaf (``NEW`` for one
that the loop has made), ``(REF, n)`` for the n-th object seen already, ``(CONST, n)`` for an object among
the constants, and ``(class, token, rest, children)`` for a container.
"""

from __future__ import annotations

import dis
import enum
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from ..loops.frameworks import Framework, framework_of
from ..tree.reach import Absent
from .containers import Members, container_of

Shape: TypeAlias = Any
NEW, REF, CONST = -1, "ref", "const"
_PENDING = object()
_WORK: Any = 10_000  # how hard NumPy tries to find a shared element


def is_module(value: Any) -> bool:
    """Whether a value is a module of torch: it has parameters, and so stays what it is and is never copied."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_whole(value: Any) -> bool:
    """Whether a value stays what it is and is never copied: a module, or a distribution of torch."""
    distributions = sys.modules.get("torch.distributions")
    return is_module(value) or (distributions is not None and isinstance(value, distributions.Distribution))


class Unbound:
    """The value of a name that has none."""

    def __repr__(self) -> str:
        return "unbound"

    def __reduce__(self) -> str:
        return "UNBOUND"  # there is one, whoever copies it


UNBOUND = Unbound()
FIXED: set[type] = {
    *(types.NoneType, bool, int, float, complex, str, bytes, range, slice, types.EllipsisType, type, Unbound, Absent),
    *(types.ModuleType, np.ufunc, np.float64, np.float32, np.int64, np.bool_, frozenset),
    *(np.dtype, types.NotImplementedType, property, Members),
}
"""Types whose values can't change, so that it does not matter which of two equal ones it is."""
SIMPLE: set[type] = {*FIXED, ndarray}
"""Types that are a leaf, seen at once."""


def is_fixed(value: Any) -> bool:
    """Whether a value can't change."""
    cls = type(value)
    if cls in FIXED:
        return True
    if cls is ndarray:
        return False
    if cls is types.BuiltinFunctionType or cls is types.MethodWrapperType:
        return value.__self__ is None or is_fixed(value.__self__)
    if cls is types.FunctionType:
        cells = value.__closure__
        return cells is None or (all(map(_is_fixed_cell, cells)) and not rebinds(value.__code__))
    if container_of(cls) is not None:
        return False
    framework = framework_of((value,))
    if framework is not None:
        value = framework.plain(value)  # a traced number is a number, and each operation makes another one
    elif is_whole(value):
        return True
    return isinstance(value, enum.Enum | type | np.dtype | float | complex) or (
        isinstance(value, np.generic) and not isinstance(value, np.void)
    )


@lru_cache(1024)
def rebinds(code: types.CodeType) -> bool:
    """Whether code assigns to a variable of an enclosing function."""
    return any(one.opname == "STORE_DEREF" and one.argval in code.co_freevars for one in dis.get_instructions(code))


def _is_fixed_cell(cell: Any) -> bool:
    try:
        content = cell.cell_contents
    except ValueError:
        return True
    return type(content) in FIXED or (type(content) is types.FunctionType and content.__closure__ is None)


class Taken:
    """Objects taken apart: their ``leaves``, and ``objects`` in the order in which they were met."""

    __slots__ = ("_apart", "_known", "_met", "_new", "leaves", "objects")

    def __init__(self, known: Mapping[int, Any], fresh: bool = False, apart: bool = False) -> None:
        """``known`` says the token, or the place among the constants, of an object by its id.

        ``fresh`` gives every object a token; ``apart`` takes a leaf that is met twice for two.
        """
        self.leaves: list[Any] = []
        self.objects: list[Any] = []
        self._known, self._met = known, dict[int, int]()
        self._new, self._apart = fresh, apart

    def met(self, value: Any) -> bool:
        """Whether an object was among those taken apart."""
        return id(value) in self._met

    def take(self, value: Any) -> Shape:
        """The shape of one object; its leaves are added to the others."""
        if is_fixed(value):
            self.leaves.append(value)
            return None
        key = id(value)
        if key in self._met and not (self._apart and container_of(type(value)) is None):
            return (REF, self._met[key])
        token = self._known.get(key, NEW)
        if type(token) is tuple:
            return token
        if self._new:
            token = len(self.objects)
        self._met[key] = len(self.objects)
        self.objects.append(value)
        container = container_of(type(value))
        if container is None:
            self.leaves.append(value)
            return token
        children, rest = container.parts(value)
        return (type(value), token, rest, tuple([self.take(child) for child in children]))


class Builder:
    """Makes objects from a shape and leaves."""

    def __init__(self, leaves: Iterable[Any], consts: Sequence[Any] = ()) -> None:
        self._leaves: Iterator[Any] = iter(leaves)
        self._consts = consts
        self.objects: list[Any] = []
        self.tokens: list[int] = []
        self._unfilled: list[tuple[Any, Any, list[Any]]] = []

    def leaf(self, value: Any, token: int) -> Any:
        """The object for a leaf."""
        return value

    def begin(self, cls: type, token: int, rest: Any) -> Any:
        """The object for a container that is filled afterwards."""
        return container_of(cls).empty(cls, rest)  # type: ignore[union-attr,misc]

    def made(self, value: Any, token: int) -> Any:
        """The object for a container that was made from its children."""
        return value

    def roots(self, shapes: Iterable[Shape]) -> list[Any]:
        """The objects of several shapes."""
        found = [self._make(shape) for shape in shapes]
        for value, rest, children in self._unfilled:
            kids = [self.objects[child.place] if type(child) is _Later else child for child in children]
            container_of(type(value)).fill(value, rest, kids)  # type: ignore[union-attr]
        return found

    def _make(self, shape: Shape) -> Any:
        if shape is None:
            return next(self._leaves)
        if type(shape) is int:
            value = self.leaf(next(self._leaves), shape)
            self.objects.append(value)
            self.tokens.append(shape)
            return value
        if len(shape) == 2:
            if shape[0] is CONST:
                return self._consts[shape[1]]
            found = self.objects[shape[1]]
            return _Later(shape[1]) if found is _PENDING else found
        return self._container(*shape)

    def _container(self, cls: type, token: int, rest: Any, shapes: tuple[Shape, ...]) -> Any:
        place = len(self.objects)
        container = container_of(cls)
        assert container is not None
        self.tokens.append(token)
        if container.empty is None:
            self.objects.append(_PENDING)
            value = self.made(container.fill(cls, rest, [self._make(shape) for shape in shapes]), token)
            self.objects[place] = value
            return value
        value = self.begin(cls, token, rest)
        self.objects.append(value)
        children = [self._make(shape) for shape in shapes]
        if any(type(child) is _Later for child in children):
            self._unfilled.append((value, rest, children))
        else:
            container.fill(value, rest, children)
        return value


class _Later:
    """Stands for an object that is being made; only functions that know themselves through a cell meet it."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def shared(framework: Framework, one: Any, two: Any) -> bool:
    """Whether two arrays, plain or traced, are different ones and writing into one could change the other."""
    if one is two or container_of(type(one)) is not None or container_of(type(two)) is not None:
        return False
    if framework.array(one) or framework.array(two):
        return _meet(framework.memory(one), framework.memory(two))
    first, second = framework.plain(one), framework.plain(two)
    if not isinstance(first, ndarray) or not isinstance(second, ndarray):
        return False
    if framework.root(one) is framework.root(two) and _buffer(first) is not _buffer(second):
        return True  # traced arrays that were written into have values of their own, and belong together all the same
    return overlap(first, second)


def _meet(one: tuple[int, int, int] | None, two: tuple[int, int, int] | None) -> bool:
    """Whether two arrays of a framework look into one memory, and at places that are not clearly apart."""
    return one is not None and two is not None and one[0] == two[0] and one[1] <= two[2] and two[1] <= one[2]


def _buffer(array: ndarray) -> Any:
    while isinstance(array.base, ndarray):
        array = array.base
    return array


def overlap(one: Any, two: Any) -> bool:
    """Whether two plain arrays share memory."""
    if one is two or not isinstance(one, ndarray) or not isinstance(two, ndarray):
        return False
    if not np.may_share_memory(one, two):
        return False
    try:
        return np.shares_memory(one, two, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True
