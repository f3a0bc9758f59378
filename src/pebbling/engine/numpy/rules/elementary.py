"""Functions of one number: exponentials, logarithms, roots, trigonometry."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, elementwise, primitive, real_only, rule, unary
from ..traced import plain

LN2, LN10 = math.log(2.0), math.log(10.0)

unary(np.exp, of_result=lambda y: y)
unary(np.exp2, of_result=lambda y: y * LN2)
unary(np.expm1, of_result=lambda y: y + 1)
unary(np.log, of_argument=lambda x: 1.0 / x)
unary(np.log2, of_argument=lambda x: 1 / (x * LN2))
unary(np.log10, of_argument=lambda x: 1 / (x * LN10))
unary(np.log1p, of_argument=lambda x: 1 / (1 + x))
unary(np.sqrt, of_result=lambda y: 0.5 / y)
unary(np.cbrt, of_result=lambda y: 1 / (3 * y * y))
unary(np.square, of_argument=lambda x: 2.0 * x)
unary(np.reciprocal, of_result=lambda y: -y * y)

unary(np.sin, of_argument=np.cos)
unary(np.cos, of_argument=lambda x: -np.sin(x))
unary(np.tan, of_result=lambda y: 1 + y * y)
unary(np.arcsin, of_argument=lambda x: 1 / np.sqrt(1 - x * x))
unary(np.arccos, of_argument=lambda x: -1 / np.sqrt(1 - x * x))
unary(np.arctan, of_argument=lambda x: 1.0 / (1.0 + x * x))
unary(np.sinh, of_argument=np.cosh)
unary(np.cosh, of_argument=np.sinh)
unary(np.arcsinh, of_argument=lambda x: 1 / np.sqrt(1 + x * x))
unary(np.arccosh, of_argument=lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)))
unary(np.arctanh, of_argument=lambda x: 1 / (1 - x * x))
unary(np.deg2rad, constant=math.pi / 180)
unary(np.radians, constant=math.pi / 180)
unary(np.rad2deg, constant=180 / math.pi)
unary(np.degrees, constant=180 / math.pi)
unary(np.fabs, of_argument=np.sign)


def _tanh_slope(y: Any) -> Any:
    square = y * y
    return np.subtract(1.0, square, square) if type(square) is np.ndarray else 1.0 - square


unary(np.tanh, of_result=_tanh_slope)


def _sinc_slope(y: Any, x: Any) -> Any:
    def slope() -> Any:
        away = np.where(x == 0, 1, x)
        return np.where(x == 0, -(math.pi**2) / 3 * x, (np.cos(math.pi * x) - y) / away)

    return slope


elementwise(np.sinc, _sinc_slope)


def _absolute_slope(y: Any, x: Any) -> Any:
    if np.iscomplexobj(x):
        return lambda: np.conjugate(x) / np.where(y == 0, 1, y)
    return lambda: np.sign(x)


elementwise(np.absolute, _absolute_slope)
elementwise(operator.abs, _absolute_slope)


@composed(np.sign, exact=True)
def sign(x: Any) -> Any:
    real_only(np.sign, x)
    return np.sign(plain(x))


@rule(np.negative)
def negative(y: Any, x: Any) -> Any:
    return [lambda g: -g], [lambda t: -t]


@rule(np.positive, operator.pos)
def positive(y: Any, x: Any) -> Any:
    return [lambda g: g], [lambda t: t]


@rule(np.conjugate)
def conjugate(y: Any, x: Any) -> Any:
    return [np.conjugate], [np.conjugate]


@rule(np.real, view=True)
def real(y: Any, x: Any) -> Any:
    return [lambda g: g], [np.real]


@rule(np.imag, view=True)
def imag(y: Any, x: Any) -> Any:
    turn = -1j if np.iscomplexobj(x) else 0.0
    return [lambda g: g * turn], [np.imag]


@composed(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    result = np.arctan2(np.imag(z), np.real(z))
    return result * (180 / math.pi) if deg else result


@composed(np.nan_to_num, exact=True)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    real_only(np.nan_to_num, x)
    if not copy:
        raise refuse("np.nan_to_num with copy=False has no derivative rule", "Use the array that it returns")
    return cleaned(x, nan=nan, posinf=posinf, neginf=neginf)


@primitive(np.nan_to_num)
def cleaned(y: Any, x: Any, *, nan: Any, posinf: Any, neginf: Any) -> Any:
    """``np.nan_to_num`` of real numbers into a new array."""
    kept = np.isfinite(x)
    return [lambda g: g * kept], [lambda t: t * kept]
