"""Functions of ``scipy.special``. Loaded when one of them meets a traced array, and then SciPy is there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special  # type: ignore[import-untyped]

from ..refuse import refuse
from ..table import elementwise, primitive

ROOT_PI = math.sqrt(math.pi)


@primitive(special.zeta, arrays=slice(1, 2))
def zeta(y: Any, s: float, q: Any) -> Any:
    """The zeta function of Hurwitz, for the derivatives of ``digamma``."""

    def slope() -> Any:
        return -s * zeta(s + 1.0, q)

    return [lambda g: g * slope()], [lambda t: t * slope()]


def unknown(*args: Any) -> Any:
    """The slope in an argument for which there is no formula here."""
    raise refuse(
        "this function of scipy.special has no derivative rule for its order or shape",
        "Pass stop_gradient(x) there if that derivative does not matter",
    )


elementwise(special.erf, lambda y, x: lambda: 2 / ROOT_PI * np.exp(-x * x))
elementwise(special.erfc, lambda y, x: lambda: -2 / ROOT_PI * np.exp(-x * x))
elementwise(special.erfcx, lambda y, x: lambda: 2 * x * y - 2 / ROOT_PI)
elementwise(special.erfinv, lambda y, x: lambda: ROOT_PI / 2 * np.exp(y * y))
elementwise(special.erfcinv, lambda y, x: lambda: -ROOT_PI / 2 * np.exp(y * y))
elementwise(special.ndtr, lambda y, x: lambda: np.exp(-x * x / 2) / math.sqrt(2 * math.pi))
elementwise(special.ndtri, lambda y, x: lambda: math.sqrt(2 * math.pi) * np.exp(y * y / 2))
elementwise(special.log_ndtr, lambda y, x: lambda: np.exp(-x * x / 2 - y) / math.sqrt(2 * math.pi))

elementwise(special.gamma, lambda y, x: lambda: y * special.digamma(x))
elementwise(special.gammaln, lambda y, x: lambda: special.digamma(x))
elementwise(special.rgamma, lambda y, x: lambda: -y * special.digamma(x))
elementwise(special.digamma, lambda y, x: lambda: zeta(2.0, x))
elementwise(
    special.beta,
    lambda y, a, b: lambda: y * (special.digamma(a) - special.digamma(a + b)),
    lambda y, a, b: lambda: y * (special.digamma(b) - special.digamma(a + b)),
)
elementwise(
    special.betaln,
    lambda y, a, b: lambda: special.digamma(a) - special.digamma(a + b),
    lambda y, a, b: lambda: special.digamma(b) - special.digamma(a + b),
)
elementwise(special.gammainc, unknown, lambda y, a, x: lambda: np.exp((a - 1) * np.log(x) - x - special.gammaln(a)))
elementwise(special.gammaincc, unknown, lambda y, a, x: lambda: -np.exp((a - 1) * np.log(x) - x - special.gammaln(a)))

elementwise(special.expit, lambda y, x: lambda: y * (1 - y))
elementwise(special.logit, lambda y, x: lambda: 1 / (x * (1 - x)))
elementwise(special.log_expit, lambda y, x: lambda: special.expit(-x))
elementwise(special.exprel, lambda y, x: lambda: (np.exp(x) - y) / x)
elementwise(special.xlogy, lambda z, x, y: lambda: np.log(np.where(x == 0, 1, y)), lambda z, x, y: lambda: x / y)
elementwise(
    special.xlog1py, lambda z, x, y: lambda: np.log1p(np.where(x == 0, 0, y)), lambda z, x, y: lambda: x / (1 + y)
)
elementwise(special.entr, lambda y, x: lambda: -np.log(x) - 1)
elementwise(special.rel_entr, lambda z, x, y: lambda: np.log(x / y) + 1, lambda z, x, y: lambda: -x / y)
elementwise(special.kl_div, lambda z, x, y: lambda: np.log(x / y), lambda z, x, y: lambda: 1 - x / y)

elementwise(special.j0, lambda y, x: lambda: -special.j1(x))
elementwise(special.j1, lambda y, x: lambda: special.j0(x) - y / x)
elementwise(special.y0, lambda y, x: lambda: -special.y1(x))
elementwise(special.y1, lambda y, x: lambda: special.y0(x) - y / x)
elementwise(special.jv, unknown, lambda y, v, x: lambda: (special.jv(v - 1, x) - special.jv(v + 1, x)) / 2)
elementwise(special.yv, unknown, lambda y, v, x: lambda: (special.yv(v - 1, x) - special.yv(v + 1, x)) / 2)
elementwise(special.i0, lambda y, x: lambda: special.i1(x))
elementwise(special.i1, lambda y, x: lambda: special.i0(x) - y / x)
elementwise(special.k0, lambda y, x: lambda: -special.k1(x))
elementwise(special.k1, lambda y, x: lambda: -special.k0(x) - y / x)
elementwise(special.iv, unknown, lambda y, v, x: lambda: (special.iv(v - 1, x) + special.iv(v + 1, x)) / 2)
elementwise(special.kv, unknown, lambda y, v, x: lambda: -(special.kv(v - 1, x) + special.kv(v + 1, x)) / 2)
elementwise(special.exp1, lambda y, x: lambda: -np.exp(-x) / x)
elementwise(special.expi, lambda y, x: lambda: np.exp(x) / x)
elementwise(special.dawsn, lambda y, x: lambda: 1 - 2 * x * y)
elementwise(special.boxcox, lambda z, x, p: lambda: x ** (p - 1), unknown)
elementwise(special.sindg, lambda y, x: lambda: special.cosdg(x) * (math.pi / 180))
elementwise(special.cosdg, lambda y, x: lambda: -special.sindg(x) * (math.pi / 180))
elementwise(special.exp10, lambda y, x: lambda: y * math.log(10.0))
elementwise(special.cbrt, lambda y, x: lambda: 1 / (3 * y * y))

from . import scipy_special as scipy_special  # noqa: E402  # those that are no ufuncs
