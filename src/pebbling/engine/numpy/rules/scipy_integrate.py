"""``scipy.integrate``: sums over samples, and the solvers of initial-value problems.

``solve_ivp`` with an explicit method (RK23, RK45, DOP853) is differentiated through the solver's own steps, the choice
of their size included: it runs on traced values. ``odeint`` gives the value of the plain one; its derivative is that
of DOP853 at a tolerance of 1e-10 with steps of a given size, since LSODA is compiled.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy import integrate  # type: ignore[import-untyped]

from ..blank import without_blanks
from ..foreign import formula, is_traced, refused_where_traced
from ..refuse import refuse
from ..standins import TRACED_LIBRARIES, current, stand_in
from ..traced import Traced, highest, plain
from .signal import trapezoid as of_samples

TRACED_LIBRARIES.add("scipy.integrate._ivp")


@formula(integrate, "trapezoid")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    return of_samples(y, x, dx, axis)


@formula(integrate, "cumulative_trapezoid")
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None) -> Any:
    y = np.moveaxis(y, axis, -1)
    steps = dx
    if x is not None:
        steps = np.diff(np.moveaxis(x, axis, -1) if np.ndim(x) > 1 else x)
    result = np.cumsum(steps * (y[..., 1:] + y[..., :-1]) / 2.0, axis=-1)
    if initial is not None:
        first = np.broadcast_to(np.asarray(initial, float), (*result.shape[:-1], 1))
        result = np.concatenate([first, result], axis=-1)
    return np.moveaxis(result, -1, axis)


_simpson = current(integrate, "simpson")


@formula(integrate, "simpson")
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    if is_traced(x, dx) or np.ndim(x) > 1:
        raise refuse("scipy.integrate.simpson has no derivative in x and dx", "Scale the integral instead")
    weights = _simpson(np.eye(np.shape(y)[axis]), x=x, dx=dx, axis=-1)
    return np.moveaxis(y, axis, -1) @ weights


_solve = current(integrate, "solve_ivp")
_EXPLICIT = ("RK23", "RK45", "DOP853")


@functools.wraps(_solve)
def solve_ivp(fun: Any, t_span: Any, y0: Any, method: Any = "RK45", *args: Any, **options: Any) -> Any:
    """The solver on traced values, if the right-hand side or the initial values are."""
    y0 = np.asarray(y0) if isinstance(y0, list | tuple) else y0
    given = options.get("args") or (args[3] if len(args) > 3 else None) or ()
    slope = fun(t_span[0], y0, *given)
    if not is_traced(slope, y0, given, t_span):
        return _solve(fun, *without_blanks((t_span, y0)), method, *args, **options)
    name = getattr(method, "__name__", method)
    if name not in _EXPLICIT and method is not Unhurried:
        raise refuse(
            f"scipy.integrate.solve_ivp with method={name!r} has no derivative rule",
            f"{', '.join(_EXPLICIT)} have one: their own steps are differentiated",
        )
    if not isinstance(y0, Traced) or y0.blank:
        top: Any = highest(_flat(slope, given, t_span))
        y0 = top.constant(np.array(plain(y0), float))
    return _solve(fun, t_span, y0, method, *args, **options)


def _flat(*values: Any) -> list[Any]:
    return [leaf for value in values for leaf in (_flat(*value) if isinstance(value, list | tuple) else [value])]


stand_in(integrate, "solve_ivp", solve_ivp)
_odeint = current(integrate, "odeint")


class Unhurried(integrate.DOP853):  # type: ignore[misc]
    """DOP853 with steps that don't depend on what is differentiated: at this tolerance their size does not matter."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.h_abs = plain(vars(self)["h_abs"])

    def _estimate_error_norm(self, K: Any, h: Any, scale: Any) -> Any:
        return super()._estimate_error_norm(plain(K), h, plain(scale))


@functools.wraps(_odeint)
def odeint(func: Any, y0: Any, t: Any, args: Any = (), **options: Any) -> Any:
    """The value of ``odeint``, with the derivative of a solver that is told to be more exact."""
    y0 = np.asarray(y0) if isinstance(y0, list | tuple) else y0
    args = args if isinstance(args, tuple) else (args,)
    first = options.get("tfirst", False)

    def slope(time: Any, y: Any) -> Any:
        return func(time, y, *args) if first else func(y, time, *args)

    if not is_traced(slope(plain(t)[0], y0), y0, args):
        return _odeint(func, without_blanks(y0), without_blanks(t), without_blanks(args), **options)
    if is_traced(t):
        raise refuse("scipy.integrate.odeint has no derivative in t", "Scale the equations by a differentiated time")
    if options.get("full_output"):
        raise refuse("scipy.integrate.odeint with full_output has no derivative rule", "Leave it out")
    y0 = np.atleast_1d(y0)

    def plainly(y: Any, time: Any) -> Any:
        return plain(np.asarray(slope(time, y)))

    known = {name: value for name, value in options.items() if name not in ("tfirst", "Dfun", "col_deriv")}
    value = _odeint(plainly, plain(y0), plain(t), **known)
    if t[-1] == t[0]:
        raise refuse("scipy.integrate.odeint over no time has no derivative rule", "Give it two times at least")
    found = solve_ivp(slope, (t[0], t[-1]), y0, Unhurried, t_eval=np.asarray(plain(t)), rtol=1e-10, atol=1e-12)
    result = np.transpose(found.y)
    while isinstance(result, Traced) and isinstance(result.value, Traced):
        return result  # of a derivative inside of another: the value is that of DOP853
    top: Any = highest((result,))
    return top.revalue(result, value)


stand_in(integrate, "odeint", odeint)
refused_where_traced(
    integrate,
    "quad dblquad tplquad nquad quad_vec fixed_quad romb cumulative_simpson solve_bvp quadrature romberg",
    "trapezoid, simpson and cumulative_trapezoid have one, and so have solve_ivp and odeint",
)
