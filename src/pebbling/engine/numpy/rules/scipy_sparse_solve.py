"""Systems of equations with constant sparse matrices: ``spsolve``, and factors that are kept."""

from __future__ import annotations

from typing import Any

from scipy.sparse import linalg  # type: ignore[import-untyped]

from ..foreign import own_rule, refused_where_traced
from ..standins import WRAPPED, current, stand_in
from ..table import primitive
from ..traced import Traced


@own_rule(linalg, "spsolve", slice(1, 2))
def spsolve(y: Any, A: Any, b: Any, permc_spec: Any = None, use_umfpack: bool = True) -> Any:
    def solve(matrix: Any, b: Any) -> Any:
        return linalg.spsolve(matrix, b, permc_spec, use_umfpack)

    return [lambda g: solve(A.T.tocsc(), g)], [lambda t: solve(A, t)]


def _solve(b: Any, factors: Any, trans: str) -> Any:
    return factors.solve(b, trans)


@primitive(_solve)
def _solved(y: Any, b: Any, factors: Any, trans: str) -> Any:
    turned = "T" if trans == "N" else "N"
    return [lambda g: _solved(g, factors, turned)], [lambda t: _solved(t, factors, trans)]


class Factors:
    """What ``splu`` gives, for right-hand sides that are traced."""

    def __init__(self, factors: Any) -> None:
        self._factors = factors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._factors, name)

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """The solution for one right-hand side, or for the columns of several."""
        if not isinstance(rhs, Traced) or rhs.blank:
            return self._factors.solve(getattr(rhs, "value", rhs), trans)
        return _solved(rhs, self._factors, trans)

    def __call__(self, rhs: Any) -> Any:
        """What the function that ``factorized`` gives does."""
        return self.solve(rhs)


def _wrapping(name: str) -> None:
    original = current(linalg, name)

    def call(A: Any, *args: Any, **kwargs: Any) -> Any:
        factors = original(A, *args, **kwargs)
        return _wrapped(factors) or factors

    stand_in(linalg, name, call)


def _wrapped(value: Any) -> Any:
    """A wrapper for factors, or for their method ``solve``; ``None`` for anything else."""
    owner = getattr(value, "__self__", None) if callable(value) else value
    if not isinstance(owner, linalg.SuperLU) or (owner is not value and value.__name__ != "solve"):
        return None
    return Factors(owner)


for name in ("splu", "spilu", "factorized"):
    _wrapping(name)
WRAPPED.append(_wrapped)

refused_where_traced(
    linalg,
    "cg cgs bicg bicgstab gmres lgmres minres qmr gcrotmk tfqmr lsqr lsmr expm_multiply eigs eigsh svds inv expm",
    "spsolve and splu(A).solve have derivatives, for a constant matrix",
)
