"""The table of rules: what the engine knows of each function, and how to tell it more.

``elementwise``  slopes ∂y/∂x, from which both modes follow
``rule``         a vjp and a jvp for every array argument
``composed``     a formula of functions that have rules
``flat``         no derivative: the result is a plain array
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .kinds import Composed, Derivatives, Elementwise, Flat, Linear, Primitive, RuleKind, Slope
from .refuse import name_of, refuse

TABLE: dict[Any, RuleKind] = {}
UNARY: dict[Any, tuple[bool, Linear]] = {}
_LATER = {"scipy.special": ".rules.special"}


def find(func: Any) -> RuleKind:
    """The rule of a function, or an error that says how to add one."""
    kind = TABLE.get(func)
    if kind is None:
        for name in [name for name in _LATER if name in sys.modules]:
            importlib.import_module(_LATER.pop(name), __package__)
        kind = TABLE.get(func)
    if kind is None:
        raise refuse(
            f"{name_of(func)} has no derivative rule",
            "Write it with functions that have one, or add one:\n"
            f"    @pebbling.engine.numpy.rule({name_of(func)})\n"
            "    def derivatives(y, x): return [lambda g: ...], [lambda t: ...]  # vjp and jvp in x\n"
            "stop_gradient(x) passes a value on without its derivative",
        )
    return kind


def rule(*funcs: Any, arrays: slice = slice(1), view: bool = False) -> Callable[[Callable[..., Derivatives]], Any]:
    """Register the derivatives of a function.

    The decorated function is called with the result and the arguments of a call, and returns one vjp
    and one jvp for each array argument; ``arrays`` says which positional arguments these are (the
    first). Both must be written with functions that have rules themselves, so that derivatives nest.
    ``view`` says that the result may share memory with the first argument.

    >>> import numpy as np
    >>> from pebbling.engine.numpy import grad, rule
    >>> @rule(np.i0)
    ... def i0(y, x):
    ...     slope = x / 2 * (1 + x**2 / 8)  # near 0
    ...     return [lambda g: g * slope], [lambda t: t * slope]
    >>> round(float(grad(np.i0)(0.1)), 5)
    0.05006
    """

    def register(derive: Callable[..., Derivatives]) -> Any:
        for func in funcs:
            TABLE[func] = Primitive(func, derive, arrays, view, own=False)
        return derive

    return register


def elementwise(func: Any, *slopes: Slope | None) -> None:
    """Register a function of one element at a time by its slopes, one an argument.

    A slope is called with the result and the arguments when the function is, and returns a function
    that computes ∂y/∂x when it is needed, so that only what it mentions is kept. ``None`` is a slope
    of zero.

    >>> import numpy as np
    >>> from pebbling.engine.numpy import elementwise
    >>> elementwise(np.sinc, lambda y, x: lambda: (np.cos(np.pi * x) - y) / x)
    """
    TABLE[func] = Elementwise(func, slopes)


def unary(
    func: Any, *, of_result: Linear | None = None, of_argument: Linear | None = None, constant: float | None = None
) -> None:
    """Register a ufunc of one argument by its slope: a function of its result or of its argument, or a constant.

    The slope has the dtype of the result; if the ufunc takes complex numbers, it is holomorphic.
    """
    if of_result is not None:
        elementwise(func, lambda y, x: lambda: of_result(y))
        UNARY[func] = True, of_result
    elif of_argument is not None:
        elementwise(func, lambda y, x: lambda: of_argument(x))
        UNARY[func] = False, of_argument
    else:
        elementwise(func, lambda y, x: lambda: constant)


def composed(*funcs: Any, exact: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Register a function by a formula of others.

    The value is still the one that NumPy computes, bit by bit, and the formula gives the derivative;
    ``exact`` says that the formula does what NumPy does, so that nothing is computed twice.
    """

    def register(formula: Callable[..., Any]) -> Any:
        for func in funcs:
            TABLE[func] = Composed(func, formula, exact)
        return formula

    return register


def flat(*funcs: Any) -> None:
    """Register functions whose derivative is zero wherever it exists, or whose result is no number."""
    for func in funcs:
        TABLE[func] = Flat(func)


def primitive(func: Any, arrays: slice = slice(1), view: bool = False) -> Callable[[Callable[..., Derivatives]], Any]:
    """A new function with its own derivatives; the decorated function gives them, as with ``rule``."""
    return lambda derive: Primitive(func, derive, arrays, view, own=True)


def real_only(func: Any, *values: Any) -> None:
    """Refuse complex arguments to a rule that is right for real ones alone."""
    if any(_is_complex(value) for value in values):
        raise refuse(
            f"{name_of(func)} of complex numbers has no derivative rule",
            "Take real and imaginary parts apart with np.real and np.imag",
        )


def _is_complex(value: Any) -> bool:
    return value.dtype.kind == "c" if hasattr(value, "dtype") else bool(np.iscomplexobj(value))
