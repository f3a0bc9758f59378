"""``scipy.interpolate``: curves through plain knots at traced places, and through traced values at plain places."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import interpolate  # type: ignore[import-untyped]

from ..blank import without_blanks
from ..foreign import is_traced, refused_where_traced
from ..kinds import Elementwise
from ..refuse import refuse
from ..standins import current, stand_in
from ..traced import Traced, highest, plain


def _evaluated(owner: type, derivative: Any) -> None:
    """Let a curve be evaluated at traced places; ``derivative(curve)`` is its slope."""
    original = owner.__call__

    def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(x):
            return original(self, without_blanks(x), *args, **kwargs)
        nu = kwargs.get("nu", args[0] if args else 0)
        if nu:
            return self.derivative(nu)(x)

        def value(x: Any) -> Any:
            return call(self, x)

        if np.ndim(value(np.ravel(plain(x))[:1])) > 1:
            raise refuse(
                "a curve of vectors has no derivative rule at differentiated places", "Take one curve for each"
            )
        return Elementwise(value, [lambda y, x: lambda: derivative(self, x)]).run((np.asarray(x),), {})

    stand_in(owner, "__call__", call)


_evaluated(interpolate.PPoly, lambda curve, x: curve.derivative()(x))
_evaluated(interpolate.BSpline, lambda curve, x: curve.derivative()(x))
_evaluated(interpolate.UnivariateSpline, lambda curve, x: curve.derivative()(x))


def _broken_line(self: Any, x: Any) -> Any:
    if self._kind == "linear":
        places = np.clip(np.searchsorted(self.x, plain(x)), 1, len(self.x) - 1)
        low, high = places - 1, places
        slope = (self.y[high] - self.y[low]) / (self.x[high] - self.x[low])
        outside = (plain(x) < self.x[0]) | (plain(x) > self.x[-1])
        return np.where(outside & (not self._extrapolate), 0.0, slope)
    if self._kind in ("nearest", "nearest-up", "previous", "next", "zero"):
        return np.zeros(np.shape(x))
    spline = self._spline
    return interpolate.BSpline(spline.t, spline.c[:, 0], spline.k).derivative()(x)


class InItsValues:
    """A curve through traced values at plain knots: at plain places it is a matrix times the values."""

    def __init__(self, make: Any, y: Any, axis: int) -> None:
        self._make, self._y, self._axis = make, y, axis

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_traced(x):
            raise refuse(
                "a curve through differentiated values has no derivative rule at differentiated places",
                "Write the interpolation with np.interp, which has both",
            )
        x, y = np.asarray(without_blanks(x)), np.moveaxis(self._y, self._axis, 0)
        weights = self._make(np.eye(np.shape(y)[0]))(np.ravel(x), *args, **kwargs)
        if np.ndim(y) > 1:
            rows = np.reshape(weights @ np.reshape(y, (np.shape(y)[0], -1)), (*x.shape, *np.shape(y)[1:]))
            result = np.moveaxis(rows, list(range(x.ndim)), [self._axis + i for i in range(x.ndim)])
        else:
            result = np.reshape(weights @ y, x.shape)
        top: Any = highest((result,))
        if isinstance(top.value, Traced):
            return result
        return top.revalue(result, np.asarray(self._make(plain(y))(x, *args, **kwargs))[()])  # SciPy's own bits


def _through(name: str) -> None:
    original = current(interpolate, name)

    class Through(original):  # type: ignore[misc, valid-type]
        def __new__(cls, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
            if is_traced(x):
                raise refuse(f"scipy.interpolate.{name} has no derivative in its knots", "np.interp has one")
            axis = kwargs.pop("axis", -1 if name == "interp1d" else 0)
            if is_traced(y):
                if isinstance(kwargs.get("fill_value"), Traced):
                    raise refuse(f"scipy.interpolate.{name} has no derivative in fill_value", "Use np.where")
                return InItsValues(lambda values: original(x, values, *args, axis=0, **kwargs), y, axis)
            return original(*without_blanks((x, y, *args)), axis=axis, **without_blanks(kwargs))

    Through.__name__ = name
    stand_in(interpolate, name, Through)


for name in ("CubicSpline", "interp1d"):
    _through(name)
_evaluate = interpolate.interp1d.__call__


def _interp1d(self: Any, x: Any) -> Any:
    if not is_traced(x):
        return _evaluate(self, without_blanks(x))
    if np.ndim(self.y) > 1:
        raise refuse("a curve of vectors has no derivative rule at differentiated places", "Take one curve for each")
    return Elementwise(lambda x: _interp1d(self, x), [lambda y, x: lambda: _broken_line(self, x)]).run(
        (np.asarray(x),), {}
    )


stand_in(interpolate.interp1d, "__call__", _interp1d)
refused_where_traced(
    interpolate,
    "RegularGridInterpolator interpn griddata RBFInterpolator Akima1DInterpolator PchipInterpolator splrep splev "
    "make_interp_spline make_smoothing_spline RectBivariateSpline pchip_interpolate KroghInterpolator",
    "CubicSpline, interp1d and np.interp have one",
)
