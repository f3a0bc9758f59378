"""What Python itself offers for numbers and arrays: the module ``math``, ``isinstance``, iteration over elements.

``math`` takes plain numbers only. Its functions have stand-ins that compute what they compute, and know the slope.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import pulls
from ..construct import array
from ..foreign import is_traced, leaves_of
from ..kinds import Elementwise, map_tree
from ..refuse import refuse
from ..standins import ISINSTANCE, current, stand_in
from ..traced import Traced, highest, plain
from ..var import NUMBERS, Var

Slope = Callable[..., Any]
_ONE: dict[str, Slope] = {
    "sin": lambda y, x: np.cos(x),
    "cos": lambda y, x: -np.sin(x),
    "tan": lambda y, x: 1 + y * y,
    "asin": lambda y, x: 1 / np.sqrt(1 - x * x),
    "acos": lambda y, x: -1 / np.sqrt(1 - x * x),
    "atan": lambda y, x: 1 / (1 + x * x),
    "sinh": lambda y, x: np.cosh(x),
    "cosh": lambda y, x: np.sinh(x),
    "tanh": lambda y, x: 1 - y * y,
    "asinh": lambda y, x: 1 / np.sqrt(x * x + 1),
    "acosh": lambda y, x: 1 / np.sqrt(x * x - 1),
    "atanh": lambda y, x: 1 / (1 - x * x),
    "exp": lambda y, x: y,
    "expm1": lambda y, x: y + 1,
    "exp2": lambda y, x: y * math.log(2),
    "log1p": lambda y, x: 1 / (1 + x),
    "log2": lambda y, x: 1 / (x * math.log(2)),
    "log10": lambda y, x: 1 / (x * math.log(10)),
    "sqrt": lambda y, x: 0.5 / y,
    "cbrt": lambda y, x: 1 / (3 * y * y),
    "fabs": lambda y, x: np.sign(x),
    "erf": lambda y, x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "erfc": lambda y, x: -2 / math.sqrt(math.pi) * np.exp(-x * x),
    "degrees": lambda y, x: 180 / math.pi,
    "radians": lambda y, x: math.pi / 180,
}
_TWO: dict[str, tuple[Slope, Slope]] = {
    "pow": (lambda z, x, p: p * x ** (p - 1), lambda z, x, p: z * np.log(np.where(plain(x) == 0, 1, x))),
    "atan2": (lambda z, y, x: x / (x * x + y * y), lambda z, y, x: -y / (x * x + y * y)),
    "copysign": (lambda z, x, y: np.sign(x) * np.copysign(1.0, plain(y)), lambda z, x, y: 0.0),
    "fmod": (lambda z, x, y: 1.0, lambda z, x, y: -np.trunc(plain(x) / plain(y))),
}
_PLAIN = "isnan isinf isfinite isclose floor ceil trunc gcd factorial comb frexp"


def _of_numbers(name: str, slopes: tuple[Slope, ...]) -> None:
    original = getattr(math, name)

    @functools.wraps(original)
    def call(*args: Any) -> Any:
        if len(args) == 1 and type(args[0]) is Var and type(args[0].value) in NUMBERS:
            (arg,) = args
            tape, x = arg.tape, arg.value
            y = original(x)
            tape.append((pulls.number, arg.index, slopes[0], y, x))
            return Var(y, tape, len(tape) - 1)
        return original(*args) if highest(args) is None else kind.run(args, {})

    def late(slope: Slope) -> Any:
        return lambda y, *args: lambda: slope(y, *args)

    kind = Elementwise(call, [late(slope) for slope in slopes])
    stand_in(math, name, call)


for name, slope in _ONE.items():
    if hasattr(math, name):
        _of_numbers(name, (slope,))
for name, both in _TWO.items():
    _of_numbers(name, both)


def _log(x: Any, *base: Any) -> Any:
    if highest((x, *base)) is None:
        return _LOG(x, *base)
    return _KIND.run((x,), {}) if not base else _log(x) / _log(base[0])


_LOG = math.log
_KIND = Elementwise(_log, [lambda y, x: lambda: 1 / x])
stand_in(math, "log", functools.wraps(_LOG)(_log))


def _on_plain(name: str) -> None:
    original = getattr(math, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*map(plain, args), **kwargs)

    stand_in(math, name, call)


for name in _PLAIN.split():
    _on_plain(name)


def _listed(arg: Any) -> Any:
    is_array: Any = isinstance(arg, np.ndarray | Traced) and np.shape(plain(arg))
    return list(arg) if isinstance(arg, Iterator) or is_array else arg


def _sums(name: str, formula: Callable[[list[Any]], Any]) -> None:
    original = getattr(math, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [_listed(arg) for arg in args]
        if not is_traced(given):
            return original(*given, **kwargs)
        result = formula(leaves_of(given))
        top: Any = highest((result,))
        value = original(*map_tree(plain, given), **kwargs)
        return top.revalue(result, value) if not isinstance(top.value, Traced) else result

    stand_in(math, name, call)


_sums("fsum", lambda values: sum(values[1:], values[0]))
_sums("hypot", lambda values: np.sqrt(sum(value * value for value in values)))


def is_instance(value: Any, kinds: Any) -> bool:
    """``isinstance``, of what a traced value stands for."""
    return isinstance(value, kinds) or (isinstance(value, Traced) and isinstance(plain(value), kinds))


ISINSTANCE.append(is_instance)


def _vectorized(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_traced(args, kwargs):
        return _VECTORIZE(self, *args, **kwargs)
    if self.signature is not None or kwargs or any(not isinstance(one, int) for one in self.excluded):
        raise refuse(
            "np.vectorize with a signature or arguments by name has no derivative rule", "Loop over the elements"
        )
    over = [i for i in range(len(args)) if i not in self.excluded]
    spread = dict(zip(over, np.broadcast_arrays(*[array(args[i], copy=None) for i in over])))
    shape = np.shape(spread[over[0]])

    def at(index: Any) -> Any:
        return self.pyfunc(*[spread[i][index] if i in spread else arg for i, arg in enumerate(args)])

    results = [at(index) for index in np.ndindex(shape)]
    if results and isinstance(results[0], tuple):
        return tuple([np.reshape(array(list(one)), shape) for one in zip(*results)])
    result = np.reshape(array(results), shape)
    return result if shape else result[()]


_VECTORIZE = np.vectorize.__call__
stand_in(np.vectorize, "__call__", _vectorized)
_NDITER, _NDENUMERATE = current(np, "nditer"), current(np, "ndenumerate")


def _elements(op: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_traced(op):
        return _NDITER(op, *args, **kwargs)
    if args or kwargs or not isinstance(op, Traced):
        raise refuse("np.nditer of several or with flags has no derivative rule", "Use np.ndindex")
    return iter(np.ravel(op, "K"))


def _numbered(arr: Any) -> Any:
    return ((index, arr[index]) for index in np.ndindex(arr.shape)) if is_traced(arr) else _NDENUMERATE(arr)


stand_in(np, "nditer", _elements)
stand_in(np, "ndenumerate", _numbered)
