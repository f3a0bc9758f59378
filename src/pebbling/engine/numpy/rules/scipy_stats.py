"""Densities and distribution functions of ``scipy.stats``.

``DENSITY`` holds the logarithm of the density in terms of ``z = (x - loc) / scale``, ``BELOW`` the distribution
function; from these two follow ``pdf``, ``logpdf``, ``cdf``, ``logcdf``, ``sf`` and ``logsf`` of every distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats  # type: ignore[import-untyped]
from scipy.stats import _distn_infrastructure, _multivariate  # type: ignore[import-untyped]

from ..blank import without_blanks
from ..foreign import is_traced
from ..kinds import Composed
from ..refuse import refuse
from ..standins import stand_in
from ..traced import plain

_HALF_LOG = 0.5 * math.log(2 * math.pi)
Function = Callable[..., Any]

DENSITY: dict[str, Function] = {
    "norm": lambda z: -z * z / 2 - _HALF_LOG,
    "expon": lambda z: -z,
    "uniform": lambda z: 0.0 * z,
    "laplace": lambda z: -np.abs(z) - math.log(2),
    "logistic": lambda z: -z - 2 * np.log1p(np.exp(-z)),
    "cauchy": lambda z: -math.log(math.pi) - np.log1p(z * z),
    "halfnorm": lambda z: -z * z / 2 + 0.5 * math.log(2 / math.pi),
    "halfcauchy": lambda z: math.log(2 / math.pi) - np.log1p(z * z),
    "rayleigh": lambda z: np.log(z) - z * z / 2,
    "gumbel_r": lambda z: -z - np.exp(-z),
    "gumbel_l": lambda z: z - np.exp(z),
    "gamma": lambda z, a: special.xlogy(a - 1, z) - z - special.gammaln(a),
    "invgamma": lambda z, a: -(a + 1) * np.log(z) - special.gammaln(a) - 1 / z,
    "beta": lambda z, a, b: special.xlog1py(b - 1, -z) + special.xlogy(a - 1, z) - special.betaln(a, b),
    "t": lambda z, n: -special.betaln(n / 2, 0.5) - 0.5 * np.log(n) - (n + 1) / 2 * np.log1p(z * z / n),
    "chi2": lambda z, k: special.xlogy(k / 2 - 1, z) - z / 2 - special.gammaln(k / 2) - k / 2 * math.log(2),
    "lognorm": lambda z, s: -((np.log(z) / s) ** 2) / 2 - np.log(s * z) - _HALF_LOG,
    "weibull_min": lambda z, c: np.log(c) + special.xlogy(c - 1, z) - z**c,
    "pareto": lambda z, b: np.log(b) - (b + 1) * np.log(z),
    "poisson": lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1) - mu,
    "bernoulli": lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p),
    "geom": lambda k, p: special.xlog1py(k - 1, -p) + np.log(p),
    "binom": lambda k, n, p: -special.betaln(n - k + 1, k + 1) - np.log(n + 1) + special.xlogy(k, p)
    + special.xlog1py(n - k, -p),
    "nbinom": lambda k, n, p: special.gammaln(n + k) - special.gammaln(k + 1) - special.gammaln(n) + n * np.log(p)
    + special.xlog1py(k, -p),
}  # fmt: skip
BELOW: dict[str, Function] = {
    "norm": special.ndtr,
    "expon": lambda z: -np.expm1(-z),
    "uniform": lambda z: z,
    "laplace": lambda z: np.where(plain(z) > 0, 1 - 0.5 * np.exp(-np.abs(z)), 0.5 * np.exp(-np.abs(z))),
    "logistic": special.expit,
    "cauchy": lambda z: 0.5 + np.arctan(z) / math.pi,
    "halfnorm": lambda z: special.erf(z / math.sqrt(2)),
    "halfcauchy": lambda z: 2 / math.pi * np.arctan(z),
    "rayleigh": lambda z: -np.expm1(-z * z / 2),
    "gumbel_r": lambda z: np.exp(-np.exp(-z)),
    "gumbel_l": lambda z: -np.expm1(-np.exp(z)),
    "gamma": lambda z, a: special.gammainc(a, z),
    "invgamma": lambda z, a: special.gammaincc(a, 1 / z),
    "beta": lambda z, a, b: special.betainc(a, b, z),
    "t": lambda z, n: special.stdtr(n, z),
    "chi2": lambda z, k: special.gammainc(k / 2, z / 2),
    "lognorm": lambda z, s: special.ndtr(np.log(z) / s),
    "weibull_min": lambda z, c: -np.expm1(-(z**c)),
    "pareto": lambda z, b: 1 - z**-b,
    "poisson": lambda k, mu: special.gammaincc(np.floor(k) + 1, mu),
    "binom": lambda k, n, p: special.betainc(n - np.floor(k), np.floor(k) + 1, 1 - p),
}


def _log_below(name: str, z: Any, shapes: Any) -> Any:
    return special.log_ndtr(z) if name == "norm" else np.log(BELOW[name](z, *shapes))


def _log_above(name: str, z: Any, shapes: Any) -> Any:
    if name == "norm":
        return special.log_ndtr(-z)
    return -z if name == "expon" else np.log(1 - BELOW[name](z, *shapes))


def _value(method: str, dist: Any, x: Any, args: Any, kwargs: Any) -> Any:
    """One method of one distribution, as a formula."""
    name = dist.name
    if name not in DENSITY or ("df" not in method and name not in BELOW and method[-3:] in ("cdf", "ogf")):
        raise refuse(
            f"scipy.stats.{name}.{method} has no derivative rule",
            f"Write it with functions of scipy.special; of these there is one: {', '.join(DENSITY)}",
        )
    shapes, loc, scale = dist._parse_args(*args, **kwargs)
    inside = np.asarray(_inside(dist, plain(x), [plain(one) for one in (*shapes, loc, scale)], method))
    z = (x - loc) / scale if hasattr(dist, "logpdf") else x - loc
    if not inside.all():  # there the value is a constant, and the formula might be infinite
        z = np.where(inside, z, dist.median(*map(plain, shapes)))
    formulas: dict[str, Callable[[], Any]] = {
        "logpdf": lambda: DENSITY[name](z, *shapes) - np.log(scale),
        "pdf": lambda: np.exp(DENSITY[name](z, *shapes)) / scale,
        "logpmf": lambda: DENSITY[name](z, *shapes),
        "pmf": lambda: np.exp(DENSITY[name](z, *shapes)),
        "cdf": lambda: BELOW[name](z, *shapes),
        "logcdf": lambda: _log_below(name, z, shapes),
        "sf": lambda: 1 - BELOW[name](z, *shapes),
        "logsf": lambda: _log_above(name, z, shapes),
    }
    result = formulas[method]()
    return result if inside.all() else np.where(inside, result, 0.0)


def _inside(dist: Any, x: Any, given: Any, method: str) -> Any:
    *shapes, loc, scale = given
    low, high = dist.support(*shapes, loc=loc, **({"scale": scale} if hasattr(dist, "logpdf") else {}))
    return (x >= low) & (x <= high)


def _method(owner: type, method: str) -> None:
    original = getattr(owner, method)

    def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(x, args, kwargs):
            return original(self, *without_blanks((x, *args)), **without_blanks(kwargs))
        x = x if hasattr(x, "dtype") or isinstance(x, float | int) else np.asarray(x, float)

        def again(x: Any, *args: Any, **kwargs: Any) -> Any:
            return call(self, x, *args, **kwargs)

        def of(x: Any, *args: Any, **kwargs: Any) -> Any:
            return _value(method, self, x, args, kwargs)

        return Composed(again, of, False).run((x, *args), kwargs)

    stand_in(owner, method, call)


def _refused(owner: type, method: str) -> None:
    original = vars(owner)[method]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_traced(args, kwargs):
            raise refuse(
                f"scipy.stats.{self.name}.{method} has no derivative rule",
                "The densities and distribution functions have one, and so have loc + scale * (plain draws)",
            )
        return original(self, *args, **kwargs)

    stand_in(owner, method, call)


for name in ("cdf", "logcdf", "sf", "logsf"):
    _method(_distn_infrastructure.rv_continuous, name)
    _method(_distn_infrastructure.rv_discrete, name)
for name in ("pdf", "logpdf"):
    _method(_distn_infrastructure.rv_continuous, name)
for name in ("pmf", "logpmf"):
    _method(_distn_infrastructure.rv_discrete, name)
for name in ("isf", "fit"):
    _refused(_distn_infrastructure.rv_continuous, name)
for name in ("rvs", "entropy"):
    _refused(_distn_infrastructure.rv_generic, name)


def _ppf(original: Any) -> Any:
    def call(self: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(q, args, kwargs):
            return original(self, *without_blanks((q, *args)), **without_blanks(kwargs))
        if self.name != "norm":
            raise refuse(f"scipy.stats.{self.name}.ppf has no derivative rule", "Solve cdf(x) = q")

        def of(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
            return special.ndtri(q) * scale + loc

        return Composed(lambda *a, **k: call(self, *a, **k), of, False).run((q, *args), kwargs)

    return call


stand_in(_distn_infrastructure.rv_continuous, "ppf", _ppf(vars(_distn_infrastructure.rv_continuous)["ppf"]))

# The normal distribution of vectors.

_NORMAL = _multivariate.multivariate_normal_gen


def _log_density(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    x = x if hasattr(x, "dtype") else np.asarray(x, float)
    n = np.shape(cov)[-1] if np.ndim(cov) else (np.size(plain(mean)) if mean is not None else 1)
    cov = np.eye(n) * cov if np.ndim(cov) == 0 else np.diag(cov) if np.ndim(cov) == 1 else cov
    if np.ndim(x) == 0 or (np.ndim(x) == 1 and n == 1):
        x = np.reshape(x, (*np.shape(x), 1))
    from_mean = x if mean is None else x - mean
    rows = np.reshape(from_mean, (-1, n))
    if allow_singular and np.linalg.matrix_rank(plain(cov), hermitian=True) < n:
        raise refuse(
            "scipy.stats.multivariate_normal of a singular covariance has no derivative rule",
            "Leave out the directions in which nothing varies",
        )
    far = np.sum(np.transpose(rows) * np.linalg.solve(cov, np.transpose(rows)), axis=0)
    result = -0.5 * (n * math.log(2 * math.pi) + np.linalg.slogdet(cov)[1] + far)
    return np.reshape(result, np.shape(from_mean)[:-1])


def _density(*args: Any, **kwargs: Any) -> Any:
    return np.exp(_log_density(*args, **kwargs))


def _of_vectors(method: str, of: Function) -> None:
    original = vars(_NORMAL)[method]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(args, kwargs):
            return original(self, *without_blanks(args), **without_blanks(kwargs))
        return Composed(lambda *a, **k: call(self, *a, **k), of, False).run(args, kwargs)

    stand_in(_NORMAL, method, call)


_of_vectors("logpdf", _log_density)
_of_vectors("pdf", _density)


class Frozen:
    """``multivariate_normal(mean, cov)`` with traced parameters."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = ("mean", "cov", "allow_singular")
        self._given = dict(zip(names, args)) | {name: kwargs[name] for name in names if name in kwargs}

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density."""
        return stats.multivariate_normal.logpdf(x, **self._given)

    def pdf(self, x: Any) -> Any:
        """The density."""
        return stats.multivariate_normal.pdf(x, **self._given)


def _frozen(self: Any, *args: Any, **kwargs: Any) -> Any:
    return Frozen(*args, **kwargs) if is_traced(args, kwargs) else _CALL(self, *args, **kwargs)


_CALL = vars(_NORMAL)["__call__"]
stand_in(_NORMAL, "__call__", _frozen)


def _frozen_logpdf(method: str) -> None:
    owner = _multivariate.multivariate_normal_frozen
    original = vars(owner)[method]

    def call(self: Any, x: Any) -> Any:
        if not is_traced(x):
            return original(self, without_blanks(x))
        return getattr(stats.multivariate_normal, method)(x, self.mean, self.cov)

    stand_in(owner, method, call)


_frozen_logpdf("logpdf")
_frozen_logpdf("pdf")
