"""The kinds of rule, and how a call with traced arguments runs under each."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from .refuse import name_of, refuse
from .traced import Traced, highest, plain, unblank

_LISTS = (list, tuple)
Slope: TypeAlias = Callable[..., Callable[[], Any]]
Linear: TypeAlias = Callable[[Any], Any]
Derivatives: TypeAlias = tuple[Sequence[Linear | None], Sequence[Linear | None]]


class RuleKind(Protocol):
    """What the table of rules holds."""

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The function on arguments of which some are traced."""


class Primitive:
    """A function with a vjp and a jvp for every array argument.

    ``func`` is what to call when some arguments are still traced, by an outer derivative: NumPy's own function
    hands such a call over by itself, and a function of ours does so by being a ``Primitive`` (``own``).
    """

    __slots__ = ("_accepts", "_most", "_out", "_raw", "arrays", "derive", "func", "view")

    def __init__(self, func: Any, derive: Callable[..., Derivatives], arrays: slice, view: bool, own: bool) -> None:
        self.derive, self.arrays, self.view = derive, arrays, view
        self._raw = func
        self.func: Any = self if own else func
        code: Any = derive.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        self._accepts = frozenset(names)
        self._most = sys.maxsize if code.co_flags & inspect.CO_VARARGS else code.co_argcount - 1
        self._out = names.index("out") if "out" in names else sys.maxsize

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._raw(*unblank(args), **kwargs) if highest(args) is None else self.run(args, kwargs)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs and any(isinstance(value, Traced) for value in kwargs.values()):
            args, kwargs = _by_position(self._raw, args, kwargs)
        if len(args) > self._most or not self._accepts.issuperset(kwargs):
            unknown = sorted(f"{name}=" for name in set(kwargs) - self._accepts)
            raise refuse(
                f"{name_of(self._raw)} has a derivative rule, but none for {', '.join(unknown) or 'all its arguments'}",
                "Leave it out or write the same with other functions",
            )
        if len(args) > self._out and args[self._out] is not None:
            raise refuse_out(self._raw)
        args = unblank(args)
        positions = range(len(args))[self.arrays]
        if any(type(args[p]) in _LISTS for p in positions):
            args = [_array_of(arg) if type(arg) in _LISTS and p in positions else arg for p, arg in enumerate(args)]
        top = highest([args[p] for p in positions])
        if top is None or any(isinstance(arg, Traced) and p not in positions for p, arg in enumerate(args)):
            raise _misplaced(self._raw)
        return top.primitive(self, args, kwargs, positions)


class Elementwise:
    """A function of one element at a time."""

    __slots__ = ("func", "slopes")

    def __init__(self, func: Any, slopes: Sequence[Slope | None]) -> None:
        self.func, self.slopes = func, slopes

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if any(type(arg) in _LISTS for arg in args):
            args = [_array_of(arg) if type(arg) in _LISTS else arg for arg in args]
        args = unblank(args)
        top = highest(args)
        if kwargs:
            raise refuse(
                f"{name_of(self.func)} has a derivative rule, but none for {', '.join(f'{name}=' for name in kwargs)}",
                "Leave it out; np.where and astype do the same",
            )
        if top is None:
            raise _misplaced(self.func)
        return top.elementwise(self, args)


class Composed:
    """A function that is a formula of others."""

    __slots__ = ("exact", "formula", "func")

    def __init__(self, func: Any, formula: Callable[..., Any], exact: bool) -> None:
        self.func, self.formula, self.exact = func, formula, exact

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            result = self.formula(*args, **kwargs)
        except TypeError:
            self._check_arguments(args, kwargs)
            raise
        if self.exact:
            return result
        top = highest(_leaves((args, kwargs)))
        if top is None:
            return result
        value = self.func(*map_tree(top.under, args), **map_tree(top.under, kwargs))
        for leaf in _leaves(args):
            if leaf is not value and top.peel(leaf) is value:
                return leaf
        if isinstance(result, tuple | list):
            return type(value)([_revalued(top, r, v) for r, v in zip(result, value)])
        return _revalued(top, result, value)

    def _check_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        try:
            inspect.signature(self.formula).bind(*args, **kwargs)
        except TypeError as error:
            reason = f"{name_of(self.func)} has no derivative rule for this call: {error}"
            raise refuse(reason, "Leave that argument out or write the same with other functions") from None


class Flat:
    """A function without a derivative."""

    __slots__ = ("func",)

    def __init__(self, func: Any) -> None:
        self.func = func

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.func(*map_tree(plain, args), **map_tree(plain, kwargs))


def _array_of(tree: Any) -> Any:
    from .construct import array  # which comes after the rules

    return array(tree)


def _revalued(top: Traced, result: Any, value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    if isinstance(result, Traced) and dtype is not None and result.dtype != dtype:
        result = result.astype(dtype)
    return top.revalue(result, value)


def refuse_out(func: Any) -> BaseException:
    """The error for ``out=``, which a statement such as ``a += x`` with a plain ``a`` implies."""
    return refuse(
        f"{name_of(func)} was asked to write its result, which has a derivative, into a plain array (out= or a += x)",
        "Use the value that it returns (a = a + x), or make the array with np.zeros(n) or np.copy(a) inside of the "
        "function",
    )


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function`` of every argument, those inside lists, tuples and dicts included."""
    if isinstance(tree, dict):
        return {key: map_tree(function, value) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)([map_tree(function, value) for value in tree])
    return function(tree)


def _leaves(tree: Any) -> Iterable[Any]:
    if isinstance(tree, dict):
        tree = tree.values()
    elif type(tree) not in (tuple, list):
        return [tree]
    return [leaf for value in tree for leaf in _leaves(value)]


def _by_position(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Traced arguments given by name, put where they belong by position."""
    try:
        names = list(inspect.signature(func).parameters)
    except ValueError:
        names = []
    args, kwargs = list(args), dict(kwargs)
    while len(args) < len(names) and names[len(args)] in kwargs:
        args.append(kwargs.pop(names[len(args)]))
    if any(isinstance(value, Traced) for value in kwargs.values()):
        raise _misplaced(func)
    return args, kwargs


def _misplaced(func: Any) -> BaseException:
    return refuse(
        f"{name_of(func)} got a traced array as an argument that has no derivative",
        "Pass stop_gradient(x) there if its derivative does not matter, and arrays by position",
    )
