"""Reverse mode: an array that notes on a tape what is done with it.

The operators are written out for speed: for two arrays of one shape and dtype, which is nearly every
operation of a loop, they leave a short tuple on the tape and check nothing on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import matmul, multiply, ndarray

from . import pulls
from .alias import link, shares
from .arraylike import Array
from .elision import LARGE, swaps_product, swaps_reflected, swaps_ufunc
from .hold import SMALL, hold_captured, keep, small_copy
from .indexing import freeze, lasts, pull_element, pull_getitem, pull_write, put
from .kinds import Elementwise
from .rules.arithmetic import base_slope
from .table import UNARY
from .tape import ONLY_HERE, StepTape, meta
from .traced import numbers

ARRAYS: set[type] = {ndarray, np.float64}  # and dual numbers, which add themselves
CONSTANTS = frozenset({ndarray, float, int, np.float64, np.float32})
NUMBERS = frozenset({float, np.float64})  # of one shape and dtype, so that nothing needs to be compared
FACTORS = frozenset({float, np.float64, int})
_array = np.array
OPERATORS: dict[Any, tuple[str, str]] = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.divide: ("__truediv__", "__rtruediv__"),
}


class Var(Array):
    """A value with a place on a tape."""

    __slots__ = ("index", "tape")

    def __init__(self, value: Any, tape: StepTape, index: int) -> None:
        self.value = value
        self.tape = tape
        self.index = index
        self.alias = None

    @property
    def level(self) -> int:
        return self.tape.level

    def peel(self, other: Any) -> Any:
        return other.value if type(other) is Var and other.tape is self.tape else other

    def constant(self, value: Any) -> Var:
        return self._note(value, None)

    def revalue(self, result: Any, value: Any) -> Any:
        if type(result) is not Var or result.tape is not self.tape:
            return value
        assert result.shape == np.shape(value), f"formula gives shape {result.shape}, NumPy {np.shape(value)}"
        return Var(value, self.tape, result.index)

    def become(self, new: Any) -> None:
        if self.peel(new) is new:
            new = self.constant(new)
        self.value = new.value
        self.index = new.index

    def _note(self, value: Any, entry: Any) -> Var:
        self.tape.append(entry)
        return Var(value, self.tape, len(self.tape) - 1)

    def _hold(self, parts: list[Any], args: Sequence[Any]) -> None:
        others = [arg for arg in args if type(arg) is not Var and not (type(arg) is ndarray and arg.nbytes <= SMALL)]
        if others:
            hold_captured(self.tape.held, [part[1] for part in parts], others)

    def elementwise(self, kind: Elementwise, args: Sequence[Any]) -> Any:
        tape = self.tape
        values = [arg.value if type(arg) is Var and arg.tape is tape else arg for arg in args]
        out = numbers(kind.func(*values))
        given = [small_copy(value) if value is arg else value for arg, value in zip(args, values)]
        parts = []
        for arg, value, slope in zip(args, values, kind.slopes):
            if value is not arg and slope is not None:
                parts.append((arg.index, slope(out, *given), *meta(value)))
        if not parts:
            return self.constant(out)
        self._hold(parts, args)
        return self._note(out, (pulls.pull_elementwise, parts))

    def primitive(self, kind: Any, args: Sequence[Any], kwargs: dict[str, Any], positions: Sequence[int]) -> Any:
        tape = self.tape
        values = [arg.value if type(arg) is Var and arg.tape is tape else arg for arg in args]
        out = numbers(kind.func(*values, **kwargs))
        if kind.view and out is values[positions[0]]:
            return args[positions[0]]
        given = [small_copy(value) if value is arg else value for arg, value in zip(args, values)]
        vjps = kind.derive(out, *given, **kwargs)[0]
        parts = []
        for position, vjp in zip(positions, vjps):
            arg = args[position]
            if values[position] is not arg and vjp is not None:
                parts.append((arg.index, vjp, *meta(values[position])))
        self._hold(parts, args)
        result = self._note(out, (pulls.pull_primitive, parts))
        if isinstance(out, tuple):
            return _items(result)
        base = args[positions[0]]
        if kind.view and values[positions[0]] is not base and shares(out, base.value):
            func, before, after = kind.func, args[: positions[0]], args[positions[0] + 1 :]
            link(base, result, lambda new: func(*before, new, *after, **kwargs))
        return result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = UNARY.get(ufunc)
        if found is not None and method == "__call__" and not kwargs:
            of_result, slope = found
            x, tape = self.value, self.tape
            out = ufunc(x)
            tape.append((pulls.pull_unary, self.index, slope, out if of_result else x))
            return Var(out, tape, len(tape) - 1)
        if ufunc is matmul and method == "__call__" and not kwargs and type(inputs[0]) is ndarray:
            left, x = inputs[0], self.value
            if (
                type(x) is ndarray
                and left.ndim == 2
                and 0 < x.ndim < 3
                and left.dtype is x.dtype
                and x.dtype.kind == "f"
            ):
                out = matmul(left, x)
                self.tape.append((pulls.pull_product_with, self.index, keep(self.tape.held, left)))
                return Var(out, self.tape, len(self.tape) - 1)
        if not kwargs and method == "__call__" and ufunc in OPERATORS and type(self.value) in ARRAYS:
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
        tape, x = self.tape, self.value
        if type(x) in NUMBERS:
            if type(other) is Var:
                y = other.value
                if other.tape is tape and type(y) in NUMBERS:
                    tape.append((pulls.add_numbers, self.index, other.index))
                    return Var(x + y, tape, len(tape) - 1)
            elif type(other) in FACTORS:
                tape.append((pulls.same_number, self.index))
                return Var(x + other, tape, len(tape) - 1)
        if type(x) in ARRAYS:
            if type(other) is Var and other.tape is tape:
                y = other.value
                if type(y) in ARRAYS:
                    if x.dtype is y.dtype and x.shape == y.shape:
                        tape.append((pulls.pull_add, self.index, other.index))
                    else:
                        tape.append((pulls.pull_add_fit, self.index, other.index, meta(x), meta(y)))
                    return Var(x + y, tape, len(tape) - 1)
            elif type(other) in CONSTANTS:
                out = x + other
                if out.dtype is x.dtype and out.shape == x.shape:
                    tape.append((pulls.pull_same, self.index))
                    return Var(out, tape, len(tape) - 1)
        return super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS and type(other) in FACTORS:
            tape.append((pulls.same_number, self.index))
            return Var(other + x, tape, len(tape) - 1)
        if type(x) in ARRAYS and type(other) in CONSTANTS:
            out = other + x
            if out.dtype is x.dtype and out.shape == x.shape:
                tape.append((pulls.pull_same, self.index))
                return Var(out, tape, len(tape) - 1)
        return super().__radd__(other)

    def __sub__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS:
            if type(other) is Var:
                y = other.value
                if other.tape is tape and type(y) in NUMBERS:
                    tape.append((pulls.subtract_numbers, self.index, other.index))
                    return Var(x - y, tape, len(tape) - 1)
            elif type(other) in FACTORS:
                tape.append((pulls.same_number, self.index))
                return Var(x - other, tape, len(tape) - 1)
        if type(x) in ARRAYS:
            if type(other) is Var and other.tape is tape:
                y = other.value
                if type(y) in ARRAYS:
                    if x.dtype is y.dtype and x.shape == y.shape:
                        tape.append((pulls.pull_subtract, self.index, other.index))
                    else:
                        tape.append((pulls.pull_subtract_fit, self.index, other.index, meta(x), meta(y)))
                    return Var(x - y, tape, len(tape) - 1)
            elif type(other) in CONSTANTS:
                out = x - other
                if out.dtype is x.dtype and out.shape == x.shape:
                    tape.append((pulls.pull_same, self.index))
                    return Var(out, tape, len(tape) - 1)
        return super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS and type(other) in FACTORS:
            tape.append((pulls.negative_number, self.index))
            return Var(other - x, tape, len(tape) - 1)
        if type(x) in ARRAYS and type(other) in CONSTANTS:
            out = other - x
            if out.dtype is x.dtype and out.shape == x.shape:
                tape.append((pulls.pull_negative, self.index))
                return Var(out, tape, len(tape) - 1)
        return super().__rsub__(other)

    def __mul__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS:
            if type(other) is Var:
                y = other.value
                if other.tape is tape and type(y) in NUMBERS:
                    tape.append((pulls.multiply_numbers, self.index, other.index, x, y))
                    return Var(x * y, tape, len(tape) - 1)
            elif type(other) in FACTORS:
                tape.append((pulls.scale_number, self.index, other))
                return Var(x * other, tape, len(tape) - 1)
        if type(x) in ARRAYS:
            if type(other) is Var and other.tape is tape:
                y = other.value
                if type(y) in ARRAYS:
                    if x.nbytes >= LARGE and swaps_product(getrefcount(self), getrefcount(other), self, other):
                        return other.__mul__(self)
                    same = x.dtype is y.dtype and x.shape == y.shape
                    pull = pulls.pull_multiply if same else pulls.pull_multiply_fit
                    tape.append((pull, self.index, other.index, x, y))
                    return Var(x * y, tape, len(tape) - 1)
            elif type(other) in CONSTANTS:
                if (
                    type(other) is ndarray
                    and x.nbytes >= LARGE
                    and swaps_product(getrefcount(self), getrefcount(other), self, other)
                ):
                    return self.__rmul__(other)
                out = x * other
                if out.dtype is x.dtype and out.shape == x.shape:
                    if type(other) is ndarray:
                        other = keep(tape.held, other)
                    tape.append((pulls.pull_scale, self.index, other))
                    return Var(out, tape, len(tape) - 1)
        return super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS and type(other) in FACTORS:
            tape.append((pulls.scale_number, self.index, other))
            return Var(other * x, tape, len(tape) - 1)
        if type(x) in ARRAYS:
            if x.nbytes >= LARGE and swaps_reflected(getrefcount(self), other, self):
                return self.__mul__(other)
            if type(other) in CONSTANTS:
                out = other * x
                if out.dtype is x.dtype and out.shape == x.shape:
                    if type(other) is ndarray:
                        other = keep(tape.held, other)
                    tape.append((pulls.pull_scale, self.index, other))
                    return Var(out, tape, len(tape) - 1)
        return super().__rmul__(other)

    def __truediv__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS:
            if type(other) is Var:
                y = other.value
                if other.tape is tape and type(y) in NUMBERS:
                    out = x / y
                    tape.append((pulls.divide_numbers, self.index, other.index, y, out))
                    return Var(out, tape, len(tape) - 1)
            elif type(other) in FACTORS:
                tape.append((pulls.shrink_number, self.index, other))
                return Var(x / other, tape, len(tape) - 1)
        if type(x) in ARRAYS:
            if type(other) is Var and other.tape is tape:
                y = other.value
                if type(y) in ARRAYS:
                    out = x / y
                    if x.dtype is y.dtype and x.shape == y.shape:
                        tape.append((pulls.pull_divide, self.index, other.index, y, out))
                    else:
                        tape.append((pulls.pull_divide_fit, self.index, other.index, y, out, meta(x)))
                    return Var(out, tape, len(tape) - 1)
            elif type(other) in CONSTANTS:
                out = x / other
                if out.dtype is x.dtype and out.shape == x.shape:
                    if type(other) is ndarray:
                        other = keep(tape.held, other)
                    tape.append((pulls.pull_shrink, self.index, other))
                    return Var(out, tape, len(tape) - 1)
        return super().__truediv__(other)

    def __rtruediv__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if type(x) in NUMBERS and type(other) in FACTORS:
            out = other / x
            tape.append((pulls.over_number, self.index, x, out))
            return Var(out, tape, len(tape) - 1)
        if type(x) in ARRAYS and type(other) in CONSTANTS:
            out = other / x
            if out.dtype is x.dtype and out.shape == x.shape:
                tape.append((pulls.pull_over, self.index, x, out))
                return Var(out, tape, len(tape) - 1)
        return super().__rtruediv__(other)

    def __pow__(self, other: Any) -> Any:
        tape, x = self.tape, self.value
        if (type(x) in ARRAYS or type(x) is float) and (type(other) is int or type(other) is float):
            out = x**other
            if type(out) is type(x) is float or (type(x) in ARRAYS and out.dtype is x.dtype):
                at = np.float64(x) if type(x) is float else x  # whose powers may be infinite
                tape.append((pulls.pull_slope, self.index, base_slope(out, at, other)))
                return Var(out, tape, len(tape) - 1)
        return super().__pow__(other)

    def __neg__(self) -> Any:
        self.tape.append((pulls.pull_negative, self.index))
        return Var(-self.value, self.tape, len(self.tape) - 1)

    def __getitem__(self, index: Any) -> Any:
        tape, x = self.tape, self.value
        if type(index) is not int:
            index = freeze(tape.held, index)
        elif type(x) is ndarray and x.ndim == 1:
            tape.append((pull_element, self.index, index, x.shape, x.dtype))
            return Var(x[index], tape, len(tape) - 1)
        out = x[index]
        tape.append((pull_getitem, self.index, index, x.shape, x.dtype))
        view = Var(out, tape, len(tape) - 1)
        if type(out) is ndarray:
            if out.base is not None and (out.base is x or out.base is x.base):
                link(self, view, None, index)
                if out.nbytes * 8 <= x.nbytes and x.nbytes > SMALL and _is_being_filled(self):
                    view.value = _apart(out)
        elif shares(out, x):
            link(self, view, None, index)
        return view

    def write(self, index: Any, part: Any) -> None:
        tape = self.tape
        index = freeze(tape.held, index)
        value = self.peel(part)
        last = lasts(index, self.value.shape, value)
        if type(value) is ndarray or not isinstance(value, Array):
            _write_plain(self, index, value)
        else:
            self.value = put(self.value, value, index)
        source, like = (None, ((), None)) if value is part else (part.index, meta(value))
        tape.append((pull_write, self.index, source, index, last, *like))
        self.index = len(tape) - 1


def row_of_numbers(items: list[Any]) -> Var | None:
    """``np.array(items)``, if the items are numbers, some of them traced by one tape; else ``None``."""
    tape, values, places = None, [], []
    for item in items:
        kind = type(item)
        if kind is Var and type(item.value) in NUMBERS and (tape is None or item.tape is tape):
            tape = item.tape
            values.append(item.value)
            places.append(item.index)
        elif kind in FACTORS:
            values.append(item)
            places.append(-1)
        else:
            return None
    if tape is None:
        return None
    tape.append((pulls.pull_row, places))
    return Var(_array(values, float), tape, len(tape) - 1)


def _write_plain(var: Var, index: Any, value: Any) -> None:
    alone = type(var.value) is ndarray and getrefcount(var.value) == ONLY_HERE and var.value.base is None
    if alone and var.value.flags.writeable:
        var.value[index] = value
    else:
        var.value = put(var.value, value, index)


def _is_being_filled(var: Var) -> bool:
    entry = var.tape[var.index]
    return entry is not None and entry[0] is pull_write


def _apart(part: ndarray) -> ndarray:
    """A copy of a small part of an array that is being filled, so that the tape need not keep the whole as it is.

    A vector with gaps keeps some: BLAS computes its products in another order than those of one without.
    """
    if part.flags.c_contiguous or part.ndim != 1:
        return part.copy() if part.flags.c_contiguous else part
    apart = np.empty(2 * part.size, part.dtype)[::2]
    apart[...] = part
    return apart


def _items(result: Var) -> Any:
    """The several results of one function, each with its own place on the tape."""
    outs, tape = result.value, result.tape
    items = []
    for position, out in enumerate(outs):
        tape.append((pulls.pull_item, result.index, position, len(outs)))
        items.append(Var(out, tape, len(tape) - 1))
    return type(outs)(*items) if hasattr(outs, "_fields") else tuple(items)
