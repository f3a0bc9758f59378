"""Arrays that the program makes itself, plain until a differentiated value is written into them.

``y = np.zeros(n); y[i + 1] = f(y[i])`` makes a plain array and fills it with traced values, which no plain array
can hold. While code runs under a derivative, ``np.zeros`` and its kin therefore hand out a ``Blank``: it holds a
plain array and does with it what NumPy does. What is computed from blanks and plain values alone is computed by
NumPy, with nothing on the tape, and is a blank again. When a traced value is written into a blank, it becomes a
traced array there and then, for every name that it has, and so do its views.

A blank that is used together with traced values counts as the plain array it holds. The tape may need that as it is,
and then it is locked (see ``hold``); the next write into the blank goes into a copy.

Compiled code that asks for a plain array (``np.asarray`` in C) gets the one that the blank holds, as in plain NumPy.
If that one is still in use when a traced value comes, the two can't be kept one array, and it is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from .alias import Alias, link, refresh
from .arraylike import OPERATORS, Array
from .construct import listed
from .dual import Dual
from .elision import LARGE, swaps_product, swaps_reflected, swaps_ufunc
from .kinds import map_tree
from .refuse import refuse
from .tape import StepTape
from .traced import Traced, plain
from .var import Var

_WRITE_INTO_THE_FIRST = frozenset({np.copyto, np.fill_diagonal, np.put, np.putmask, np.place, np.put_along_axis})


class _Here(threading.local):
    """The derivative that the code of this thread runs under, the innermost."""

    of: Var | Dual | None = None


_HERE = _Here()


class Under:
    """A stretch of code that runs under the derivative of a traced value; under none if there is no such value."""

    __slots__ = ("_before", "_of")

    def __init__(self, of: Any) -> None:
        self._of = of

    def __enter__(self) -> None:
        self._before, _HERE.of = _HERE.of, self._of

    def __exit__(self, *error: object) -> None:
        _HERE.of = self._before


def under_tape(tape: StepTape) -> Under:
    """The stretch in which a step runs with this tape."""
    return Under(Var(None, tape, -1))


def under_level(level: int) -> Under:
    """The stretch in which a step runs with dual numbers of this level."""
    return Under(Dual(None, None, level))


def is_under() -> bool:
    """Whether the code that runs is being differentiated."""
    return _HERE.of is not None


def handed_out(value: Any) -> Any:
    """A new plain array as the program gets it: a blank, if it can hold what is differentiated here."""
    of = _HERE.of
    if of is None or type(value) is not ndarray or value.dtype.kind not in "fc":
        return value
    return _blank(of, value if value.base is None and value.flags.writeable else value.copy("K"))


def _blank(like: Any, value: ndarray) -> Any:
    if isinstance(like, Var):
        return BlankVar(value, like.tape, -1)
    return BlankDual(value, None, like.level)


def without_blanks(tree: Any) -> Any:
    """The same arguments with the plain array in place of every blank."""
    return map_tree(_held, tree)


def _held(value: Any) -> Any:
    return value.value if isinstance(value, Traced) and value.blank else value


class Blank(Array):
    """What blanks of both modes do; they are made into ``Var`` or ``Dual`` in place."""

    __slots__ = ()
    blank = True

    def settle(self) -> Any:
        """Become a traced array."""
        raise NotImplementedError

    def _given_away(self) -> None:
        alias = self.alias
        if alias is None or not alias.exposed:
            return
        views = [view() for view in alias.views or ()]
        if getrefcount(self.value) > 2 + sum(view is not None and view.value.base is self.value for view in views):
            raise refuse(
                "a differentiated value is written into an array of which compiled code or a view made by it still "
                "has the plain memory",
                "Give that code a copy (x.copy())",
            )

    # What is done with it.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if (
            ufunc is np.multiply
            and len(inputs) == 2
            and inputs[1] is self
            and self.value.nbytes >= LARGE
            and swaps_ufunc(getrefcount(inputs[0]) - 1, getrefcount(self) - 1, plain(inputs[0]), self)
        ):
            inputs = (self, inputs[0])
        return self._call(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._call(func, args, kwargs)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = kwargs.get("out")
        target: Any = out[0] if type(out) is tuple and len(out) == 1 else out
        if target is None and getattr(func, "__name__", None) == "at":
            target = args[0]
        if target is None and func in _WRITE_INTO_THE_FIRST:
            target = args[0] if args else next(iter(kwargs.values()))
        leaves = list(_leaves((args, kwargs)))
        traced = [leaf for leaf in leaves if isinstance(leaf, Traced) and not leaf.blank]
        if isinstance(target, Blank):
            if not traced:
                target._make_writable()
                result = func(*without_blanks(args), **without_blanks(kwargs))
                return target if out is not None else result
            top: Any = max(traced, key=lambda one: one.level)
            if top is not target:
                target.settle()
        if not traced:
            result = func(*without_blanks(args), **without_blanks(kwargs))
            return _wrapped(result, [leaf for leaf in leaves if isinstance(leaf, Traced)], func, args, kwargs)
        return func(*without_blanks(args), **without_blanks(kwargs))

    def __getitem__(self, index: Any) -> Any:
        out = self.value[_held(index) if type(index) is not tuple else tuple(map(_held, index))]
        if type(out) is not ndarray:
            return out
        view = _blank(self, out)
        if out.base is not None and (out.base is self.value or out.base is self.value.base):
            link(self, view, None, index)
        return view

    def write(self, index: Any, part: Any) -> None:
        if isinstance(part, Traced) and not part.blank:
            self.settle().write(index, part)
            return
        self._make_writable()
        self.value[_held(index) if type(index) is not tuple else tuple(map(_held, index))] = _held(part)

    def become(self, new: Any) -> None:
        if isinstance(new, Traced) and new.blank:
            self.value = new.value
        else:
            self.settle().become(new)

    def fill_from(self, new: Any) -> Any:
        """``self[...] = new`` for a plain ``new``, seen by all views because they share its memory."""
        self._make_writable()
        self.value[...] = _held(new)
        return self

    def _make_writable(self) -> None:
        """Move to a copy if a tape needs the memory as it is."""
        root: Any = self
        while root.alias is not None and root.alias.base is not None and root.alias.base.blank:
            root = root.alias.base
        if not (root.value.flags.writeable and self.value.flags.writeable):
            root.value = root.value.copy("K")
            if root.alias is not None:
                refresh(root)

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        return self._of_method("astype", (dtype,), kwargs)

    def copy(self, order: Any = "C") -> Any:
        return _blank(self, self.value.copy(order))

    def item(self, *position: Any) -> Any:
        return self.value.item(*position)

    def tolist(self) -> Any:
        return self.value.tolist()

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self._make_writable()
        self.value.sort(axis, kind)

    def _of_method(self, name: str, args: Any, kwargs: Any) -> Any:
        result = getattr(self.value, name)(*without_blanks(args), **without_blanks(kwargs))

        def call(one: Any, *rest: Any, **named: Any) -> Any:
            return getattr(one, name)(*rest, **named)

        return _wrapped(result, [self], call, (self, *args), kwargs)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __index__(self) -> int:
        return self.value.__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy or (dtype is not None and np.dtype(dtype) != self.value.dtype):
            return np.array(self.value, dtype)
        return self._exposed().view()

    def _exposed(self) -> Any:
        one: Any = self
        while one is not None:
            one.alias = one.alias or Alias()
            one.alias.exposed = True
            one = one.alias.base
        return self.value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(self.value).__reduce_ex__(2)

    def __repr__(self) -> str:
        return repr(self.value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.value, name)
        if not callable(found):
            if isinstance(found, int | bool | tuple | np.dtype) or name == "flags":
                return found
            return getattr(self._exposed(), name)
        if name in ("view", "setflags", "resize", "getfield", "setfield", "byteswap", "partition", "put", "dump"):
            self._exposed()
        return lambda *args, **kwargs: self._of_method(name, args, kwargs)


_MIRRORED = {
    f"__{here}{name}__": f"__{there}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    for here, there in (("", "r"), ("r", ""))
}
"""The operator of the other operand."""


def _operator(name: str) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        other = _held(listed(other))
        if isinstance(other, Traced):  # a list of traced values
            return getattr(other, _MIRRORED[name])(self)
        out = getattr(self.value, name)(other)
        return _blank(self, out) if type(out) is ndarray and out.dtype.kind in "fc" else out

    return operator


for name in OPERATORS:
    setattr(Blank, name, _operator(name))

_times, _timed = Blank.__mul__, Blank.__rmul__


def _large(other: Any) -> bool:
    return not isinstance(other, int | float) and getattr(other, "nbytes", 0) >= LARGE


def _multiply(self: Any, other: Any) -> Any:
    if _large(other) and swaps_product(getrefcount(self), getrefcount(other), self, other):
        return _timed(self, other)
    return _times(self, other)


def _multiplied(self: Any, other: Any) -> Any:
    if self.nbytes >= LARGE and swaps_reflected(getrefcount(self), plain(other), self):
        return _times(self, other)
    return _timed(self, other)


Blank.__mul__, Blank.__rmul__ = _multiply, _multiplied


def _unary(name: str) -> Callable[..., Any]:
    return lambda self: _blank(self, getattr(self.value, name)())


for name in ("__neg__", "__pos__", "__abs__"):
    setattr(Blank, name, _unary(name))


class BlankVar(Blank, Var):
    """A blank under a tape."""

    __slots__ = ()

    def settle(self) -> Var:
        self._given_away()
        self.tape.append(None)
        self.index = len(self.tape) - 1
        self.__class__ = Var  # type: ignore[assignment]
        return self


class BlankDual(Blank, Dual):
    """A blank among dual numbers."""

    __slots__ = ()

    def settle(self) -> Dual:
        self._given_away()
        self.__class__ = Dual  # type: ignore[assignment]
        return self


def _wrapped(out: Any, blanks: list[Any], func: Any, args: Any, kwargs: Any, place: Any = None) -> Any:
    """What NumPy gave for blanks, as a blank or several; views of one of them know it."""
    if type(out) is ndarray:
        if out.dtype.kind not in "fc":
            return out
        for blank in blanks:
            if out is blank.value:
                return blank
        result = _blank(blanks[0], out)
        if out.base is not None:
            for blank in blanks:
                if out.base is blank.value or out.base is blank.value.base:
                    link(blank, result, _again(blank, func, args, kwargs, place))
                    break
        return result
    if isinstance(out, tuple | list):
        parts = [_wrapped(one, blanks, func, args, kwargs, i) for i, one in enumerate(out)]
        if hasattr(out, "_fields"):
            return type(out)(*parts)
        return type(out)(parts) if type(out) in (tuple, list) else out
    return out


def _again(blank: Any, func: Any, args: Any, kwargs: Any, place: Any) -> Callable[[Any], Any]:
    def again(new: Any) -> Any:
        def exchanged(one: Any) -> Any:
            return new if one is blank else one

        out = func(*map_tree(exchanged, args), **map_tree(exchanged, kwargs))
        return out if place is None else out[place]

    return again


def _leaves(tree: Any) -> Iterable[Any]:
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        yield tree
        return
    for one in tree:
        yield from _leaves(one)
