"""What all traced values have in common: a value one level below, and a level that says which one is outermost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy import dtype, memmap, ndarray

from .refuse import refuse

_OBJECTS = dtype(object)


class Traced:
    """A value that a derivative follows. It stands for ``value``, which may be traced by an outer derivative."""

    __slots__ = ("__weakref__", "alias", "value")

    value: Any
    alias: Any
    dtype: Any
    astype: Any
    __array__: Any
    blank = False
    """Whether it is plain as yet (see ``blank``)."""

    @property
    def level(self) -> int:
        """Greater for the derivative that runs inside another."""
        raise NotImplementedError

    def peel(self, other: Any) -> Any:
        """``other`` one level below this one: its value if it is traced at this level, else itself."""
        raise NotImplementedError

    def under(self, other: Any) -> Any:
        """``peel``, with the plain array in place of a blank."""
        return other.value if isinstance(other, Traced) and other.blank else self.peel(other)

    def constant(self, value: Any) -> Traced:
        """``value`` traced at this level, with no derivative yet."""
        raise NotImplementedError

    def elementwise(self, kind: Any, args: Sequence[Any]) -> Any:
        """Run an elementwise function of which this is the outermost argument."""
        raise NotImplementedError

    def primitive(self, kind: Any, args: Sequence[Any], kwargs: dict[str, Any], positions: Sequence[int]) -> Any:
        """Run a function of which this is the outermost argument; arrays stand at ``positions``."""
        raise NotImplementedError

    def revalue(self, result: Any, value: Any) -> Any:
        """``result`` with another value and the same derivative."""
        raise NotImplementedError

    def write(self, index: Any, part: Any) -> None:
        """``self[index] = part``, for this name alone."""
        raise NotImplementedError

    def become(self, new: Any) -> None:
        """Take the value and derivative of ``new``, which is traced at the same level."""
        raise NotImplementedError


def highest(args: Iterable[Any]) -> Traced | None:
    """The argument of the innermost derivative, which is the one to run next."""
    top: Traced | None = None
    for arg in args:
        if isinstance(arg, Traced) and not arg.blank and (top is None or arg.level > top.level):
            top = arg
    return top


def unblank(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments with the plain array in place of every blank."""
    for arg in args:
        if isinstance(arg, Traced) and arg.blank:
            return [one.value if isinstance(one, Traced) and one.blank else one for one in args]
    return args


def plain(value: Any) -> Any:
    """The value below all derivatives."""
    while isinstance(value, Traced):
        value = value.value
    return value


def numbers(out: Any) -> Any:
    """``out``, unless it is an array of Python objects or of a kind with its own arithmetic, such as ``np.matrix``."""
    if getattr(out, "dtype", None) is _OBJECTS:
        raise refuse("an array of Python objects has no derivative", "Convert it with .astype(float)")
    if isinstance(out, ndarray) and type(out) is not ndarray and not isinstance(out, memmap):
        raise refuse(f"{type(out).__name__} has no derivative rules", "Convert it with np.asarray")
    return out


def is_array(value: Any) -> bool:
    """Whether it stands for an array, which can be assigned to, rather than a number, which can't."""
    return isinstance(plain(value), ndarray)
