"""Forward mode: an array and its tangent. A tangent of ``None`` is zero, and nothing is computed for it."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import add, multiply, ndarray

from .alias import link, shares
from .arraylike import Array
from .elision import LARGE, swaps_product, swaps_reflected, swaps_ufunc
from .indexing import add_at, freeze, lasts, put
from .kinds import Elementwise
from .rules.arithmetic import base_slope
from .table import UNARY
from .tape import ONLY_HERE, meta
from .traced import numbers
from .var import ARRAYS, OPERATORS

NUMBERS = frozenset({float, int, np.float64, np.float32})
SMALL = 1024  # bytes up to which NumPy has memory at hand, so that looking for some to use again does not pay
_OBJECTS = np.dtype(object)


class Dual(Array):
    """A value, and how fast it changes along one direction."""

    __slots__ = ("level", "tangent")

    level: int

    def __init__(self, value: Any, tangent: Any, level: int) -> None:
        self.value = value
        self.tangent = tangent
        self.level = level
        self.alias = None

    def peel(self, other: Any) -> Any:
        return other.value if type(other) is Dual and other.level == self.level else other

    def constant(self, value: Any) -> Dual:
        return Dual(value, None, self.level)

    def revalue(self, result: Any, value: Any) -> Any:
        if self.peel(result) is result:
            return value
        assert result.shape == np.shape(value), f"formula gives shape {result.shape}, NumPy {np.shape(value)}"
        return Dual(value, result.tangent, self.level)

    def become(self, new: Any) -> None:
        if self.peel(new) is new:
            new = self.constant(new)
        self.value = new.value
        self.tangent = new.tangent

    def _tangent(self, other: Any) -> Any:
        return other.tangent if type(other) is Dual and other.level == self.level else None

    def elementwise(self, kind: Elementwise, args: Sequence[Any]) -> Any:
        values = [self.peel(arg) for arg in args]
        out = numbers(kind.func(*values))
        total = None
        for arg, slope in zip(args, kind.slopes):
            t = self._tangent(arg)
            if t is not None and slope is not None:
                total = _sum(total, t * slope(out, *values)())
        return Dual(out, None if total is None else _spread(total, out), self.level)

    def primitive(self, kind: Any, args: Sequence[Any], kwargs: dict[str, Any], positions: Sequence[int]) -> Any:
        values = [self.peel(arg) for arg in args]
        out = numbers(kind.func(*values, **kwargs))
        if kind.view and out is values[positions[0]]:
            return args[positions[0]]
        tangents = [self._tangent(args[p]) for p in positions]
        total = None
        if any(t is not None for t in tangents):
            for t, jvp in zip(tangents, kind.derive(out, *values, **kwargs)[1]):
                if t is not None and jvp is not None:
                    total = _sum(total, jvp(t))
        if isinstance(out, tuple):
            each = [None] * len(out) if total is None else total
            items = [Dual(o, None if t is None else _spread(t, o), self.level) for o, t in zip(out, each)]
            return type(out)(*items) if hasattr(out, "_fields") else tuple(items)
        result = Dual(out, None if total is None else _spread(total, out), self.level)
        base = args[positions[0]]
        if kind.view and values[positions[0]] is not base and shares(out, base.value):
            func, before, after = kind.func, args[: positions[0]], args[positions[0] + 1 :]
            link(base, result, lambda new: func(*before, new, *after, **kwargs))
        return result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = UNARY.get(ufunc)
        if found is not None and method == "__call__" and not kwargs:
            of_result, slope = found
            x, t = self.value, self.tangent
            out = ufunc(x)
            if t is not None:
                factor = slope(out if of_result else x)
                if type(factor) is ndarray and factor.nbytes > SMALL and _is_new(factor, t):
                    t = multiply(t, factor, factor)
                else:
                    t = t * factor
            return Dual(out, t, self.level)
        if not kwargs and method == "__call__" and ufunc in OPERATORS and isinstance(self.value, ndarray):
            forward, reflected = OPERATORS[ufunc]
            left, right = inputs
            if (
                ufunc is multiply
                and right is self
                and self.value.nbytes >= LARGE
                and swaps_ufunc(getrefcount(left) - 1, getrefcount(self) - 1, left, self)
            ):
                return self.__mul__(left)
            return getattr(self, forward)(right) if left is self else getattr(self, reflected)(left)
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __add__(self, other: Any) -> Any:
        x, t = self.value, self.tangent
        if type(other) is ndarray is type(x) and other.dtype is x.dtype:
            out = x + other
            if t is None or out.shape == t.shape:
                return Dual(out, t, self.level)
            return Dual(out, _spread(t, out), self.level)
        if type(other) is Dual and other.level == self.level:
            y, u = other.value, other.tangent
            if t is not None and u is not None:
                if type(x) is not float and type(y) is not float:
                    return Dual(x + y, t + u, self.level)
                t = t + u
            else:
                t = u if t is None else t
        elif _is_constant(other):
            y = other
        else:
            return super().__add__(other)
        out = x + y
        if t is not None and not (type(out) is type(t) is ndarray and out.dtype is t.dtype and out.shape == t.shape):
            t = _spread(t, out)
        return Dual(out, t, self.level)

    def __sub__(self, other: Any) -> Any:
        x, t = self.value, self.tangent
        if type(other) is Dual and other.level == self.level:
            y, u = other.value, other.tangent
            if u is not None:
                t = -u if t is None else t - u
        elif _is_constant(other):
            y = other
        else:
            return super().__sub__(other)
        out = x - y
        if t is not None and not (type(out) is type(t) is ndarray and out.dtype is t.dtype and out.shape == t.shape):
            t = _spread(t, out)
        return Dual(out, t, self.level)

    def __mul__(self, other: Any) -> Any:
        x, t = self.value, self.tangent
        if (
            type(x) is ndarray
            and x.nbytes >= LARGE
            and swaps_product(getrefcount(self), getrefcount(other), self, other)
        ):
            return other.__mul__(self) if type(other) is Dual else self.__rmul__(other)
        if type(other) is ndarray is type(x) and other.dtype is not _OBJECTS:
            return Dual(x * other, None if t is None else t * other, self.level)
        if type(other) is Dual and other.level == self.level:
            y, u = other.value, other.tangent
            if t is not None and u is not None:
                t, u = t * y, x * u
                t = add(t, u, t) if type(t) is ndarray and t.nbytes > SMALL and _is_new(t, u) else t + u
                u = None
            elif t is not None:
                t = t * y
            elif u is not None:
                t = x * u
            out = x * y
            if t is not None and (type(x) is float or type(y) is float):
                t = _spread(t, out)
            return Dual(out, t, self.level)
        if _is_constant(other):
            out = x * other
            if t is not None:
                t = t * other if type(x) is not float else _spread(t * other, out)
            return Dual(out, t, self.level)
        return super().__mul__(other)

    def __truediv__(self, other: Any) -> Any:
        x, t = self.value, self.tangent
        if type(other) is Dual and other.level == self.level:
            y, u = other.value, other.tangent
            out = x / y
            if u is not None:
                t = -out * u if t is None else t - out * u
            return Dual(out, None if t is None else _spread(t / y, out), self.level)
        if _is_constant(other):
            out = x / other
            return Dual(out, None if t is None else _spread(t / other, out), self.level)
        return super().__truediv__(other)

    def __radd__(self, other: Any) -> Any:
        if not _is_constant(other):
            return super().__radd__(other)
        out, t = other + self.value, self.tangent
        return Dual(out, None if t is None else _spread(t, out), self.level)

    def __rsub__(self, other: Any) -> Any:
        if not _is_constant(other):
            return super().__rsub__(other)
        out, t = other - self.value, self.tangent
        return Dual(out, None if t is None else _spread(-t, out), self.level)

    def __rmul__(self, other: Any) -> Any:
        x, t = self.value, self.tangent
        if type(x) is ndarray and x.nbytes >= LARGE and swaps_reflected(getrefcount(self), other, self):
            return self.__mul__(other)
        if not _is_constant(other):
            return super().__rmul__(other)
        out = other * x
        return Dual(out, None if t is None else _spread(other * t, out), self.level)

    def __rtruediv__(self, other: Any) -> Any:
        if not _is_constant(other):
            return super().__rtruediv__(other)
        x, t = self.value, self.tangent
        out = other / x
        return Dual(out, None if t is None else -(t / x) * out, self.level)

    def __pow__(self, other: Any) -> Any:
        if type(other) is not int and type(other) is not float:
            return super().__pow__(other)
        x, t = self.value, self.tangent
        out = x**other
        return Dual(out, None if t is None else t * base_slope(out, x, other)(), self.level)

    def __neg__(self) -> Any:
        return Dual(-self.value, None if self.tangent is None else -self.tangent, self.level)

    def __getitem__(self, index: Any) -> Any:
        x, t = self.value, self.tangent
        if type(index) is not int:
            index = freeze(None, index)
        out = x[index]
        view = Dual(out, None if t is None else t[index], self.level)
        if type(out) is ndarray:
            if out.base is not None and (out.base is x or out.base is x.base):
                link(self, view, None, index)
        elif shares(out, x):
            link(self, view, None, index)
        return view

    def write(self, index: Any, part: Any) -> None:
        value, tangent = self.peel(part), self._tangent(part)
        index = freeze(None, index)
        last = None if self.tangent is None and tangent is None else lasts(index, self.shape, value)
        if self.tangent is None and tangent is not None:
            self.tangent = np.zeros(self.shape, self.dtype)
        if self.tangent is not None:
            part = 0 if tangent is None else tangent
            if last is None and type(self.tangent) is ndarray and _is_plain(part) and self._alone_tangent():
                self.tangent[index] = part
            else:
                self.tangent = put(self.tangent, part, index, last)
        if type(self.value) is ndarray and _is_plain(value) and self._alone_value():
            self.value[index] = value
        else:
            self.value = put(self.value, value, index)

    def add_at(self, index: Any, part: Any) -> bool:
        """``self[index] += part`` into memory that is this value's own; says whether it could."""
        value, tangent = self.peel(part), self._tangent(part)
        if not (_is_plain(value) and _is_plain(tangent) and self._alone_value()):
            return False
        if self.tangent is not None and not self._alone_tangent():
            return False
        if tangent is not None:
            if self.tangent is None:
                self.tangent = np.zeros(self.shape, self.dtype)
            add_at(self.tangent, index, tangent)
        add_at(self.value, index, value)
        return True

    def _alone_value(self) -> bool:
        alone = type(self.value) is ndarray and getrefcount(self.value) == ONLY_HERE and self.value.base is None
        return alone and self.value.flags.writeable

    def _alone_tangent(self) -> bool:
        alone = type(self.tangent) is ndarray and getrefcount(self.tangent) == ONLY_HERE and self.tangent.base is None
        return alone and self.tangent.flags.writeable


ARRAYS.add(Dual)


def _is_constant(other: Any) -> bool:
    return type(other) in NUMBERS or (type(other) is ndarray and other.dtype is not _OBJECTS)


def _is_new(array: ndarray, like: Any) -> bool:
    """Whether only the caller refers to ``array``, so that a result that looks like ``like`` may be put there."""
    new = getrefcount(array) == ONLY_HERE + 1 and array.base is None
    return new and type(like) is ndarray and array.dtype is like.dtype and array.shape == like.shape


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Array)


def _sum(total: Any, part: Any) -> Any:
    if total is None:
        return part
    if isinstance(part, tuple):
        return tuple([_sum(a, b) if b is not None else a for a, b in zip(total, part)])
    return total + part


def _spread(t: Any, out: Any) -> Any:
    """A tangent with the shape and dtype of its value."""
    shape, dtype = meta(out)
    if t.shape != shape:
        t = np.broadcast_to(t, shape)
    if t.dtype is not dtype and t.dtype != dtype:
        t = t.real.astype(dtype) if t.dtype.kind == "c" and dtype.kind != "c" else t.astype(dtype)
    return t
