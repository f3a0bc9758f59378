"""Functions of ``scipy.special`` that are no ufuncs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special  # type: ignore[import-untyped]

from ..foreign import formula
from ..table import elementwise
from ..traced import plain
from .special import unknown, zeta


def _top(a: Any, axis: Any) -> Any:
    """The largest element, a constant that keeps the exponentials in range."""
    top = np.max(plain(a), axis=axis, keepdims=True)
    return np.where(np.isfinite(top), top, 0.0)


@formula(special, "logsumexp")
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    top = _top(a, axis)
    weights = np.exp(a - top) if b is None else b * np.exp(a - top)
    total = np.sum(weights, axis=axis, keepdims=True)
    result = np.log(np.abs(total)) + top
    if not keepdims:
        result = np.squeeze(result, axis=axis)
    return (result, np.sign(plain(result))) if return_sign else result


@formula(special, "softmax")
def softmax(x: Any, axis: Any = None) -> Any:
    e = np.exp(x - _top(x, axis))
    return e / np.sum(e, axis=axis, keepdims=True)


@formula(special, "log_softmax")
def log_softmax(x: Any, axis: Any = None) -> Any:
    shifted = x - _top(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@formula(special, "polygamma")
def polygamma(n: Any, x: Any) -> Any:
    n = np.asarray(plain(n))
    return np.where(n == 0, special.digamma(x), (-1.0) ** (n + 1) * special.gamma(n + 1.0) * zeta(n + 1.0, x))


@formula(special, "multigammaln")
def multigammaln(a: Any, d: Any) -> Any:
    total = d * (d - 1) / 4 * np.log(np.pi)
    for j in range(d):
        total = total + special.gammaln(a - j / 2)
    return total


def _slope_of_betainc(y: Any, a: Any, b: Any, x: Any) -> Any:
    return np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - special.betaln(a, b))


elementwise(special.betainc, unknown, unknown, lambda y, a, b, x: lambda: _slope_of_betainc(y, a, b, x))
elementwise(special.betaincc, unknown, unknown, lambda y, a, b, x: lambda: -_slope_of_betainc(y, a, b, x))
elementwise(
    special.stdtr,
    unknown,
    lambda y, df, t: lambda: (1 + t * t / df) ** (-(df + 1) / 2) / (np.sqrt(df) * np.exp(special.betaln(df / 2, 0.5))),
)
for order in (special.yn,):
    elementwise(order, unknown, lambda y, n, x: lambda: (special.yv(n - 1, x) - special.yv(n + 1, x)) / 2)
elementwise(special.ive, unknown, lambda y, v, x: lambda: (
    (special.ive(v - 1, x) + special.ive(v + 1, x)) / 2 - np.sign(x) * y
))  # fmt: skip
elementwise(special.gammasgn, None)
elementwise(
    special.poch,
    lambda y, z, m: lambda: y * (special.digamma(z + m) - special.digamma(z)),
    lambda y, z, m: lambda: y * special.digamma(z + m),
)
elementwise(
    special.chdtr,
    unknown,
    lambda y, k, x: lambda: np.exp((k / 2 - 1) * np.log(x / 2) - x / 2 - special.gammaln(k / 2)) / 2,
)
elementwise(
    special.pdtr, None, lambda y, k, m: lambda: -np.exp(np.floor(k) * np.log(m) - m - special.gammaln(np.floor(k) + 1))
)
elementwise(special.ellipk, lambda y, m: lambda: (special.ellipe(m) / (1 - m) - y) / (2 * m))
elementwise(special.ellipe, lambda y, m: lambda: (y - special.ellipk(m)) / (2 * m))
