"""Decompositions of matrices and stacks of them.

Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008). Eigenvectors and singular vectors have a derivative only where the values are distinct;
the values of ``eigh`` and ``svd`` have one everywhere but where they meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, real_only, rule
from ..traced import plain
from .eigen import adjoint, complex_svd, phase_back, phase_on, reciprocal_gaps, turn


@rule(np.linalg.cholesky)
def cholesky(y: Any, x: Any, /, *, upper: bool = False) -> Any:
    if upper:
        raise refuse("np.linalg.cholesky with upper=True has no derivative rule", "Transpose the lower factor")

    def half(a: Any) -> Any:
        n = np.shape(a)[-1]
        return np.tril(a) * (1 - 0.5 * np.eye(n))

    def vjp(g: Any) -> Any:
        # In terms of the conjugate, which is what the formula is for.
        inner = np.linalg.solve(adjoint(y), half(adjoint(y) @ np.conjugate(g)))
        whole = adjoint(np.linalg.solve(adjoint(y), adjoint(inner)))
        return np.conjugate(whole + adjoint(whole)) / 2

    def jvp(t: Any) -> Any:
        inner = np.linalg.solve(y, adjoint(np.linalg.solve(y, adjoint((t + adjoint(t)) / 2))))
        return y @ half(inner)

    return [vjp], [jvp]


@rule(np.linalg.eigh)
def eigh(y: Any, x: Any, UPLO: str = "L") -> Any:
    w, v = y

    def vjp(gs: Any) -> Any:
        gw, gv = gs
        inner: Any = 0.0
        if gw is not None:
            inner = gw[..., None] * np.eye(np.shape(w)[-1])
        if gv is not None:
            if np.iscomplexobj(plain(v)):
                gv = phase_back("np.linalg.eigh", v, gv, np.sum(gv * v, axis=-2, keepdims=True))
            inner = inner + reciprocal_gaps(w) * (turn(v) @ gv)
        return _one_triangle(np.conjugate(v) @ inner @ turn(v), UPLO)

    def jvp(t: Any) -> Any:
        inner = adjoint(v) @ _from_triangle(t, UPLO) @ v
        dv = v @ (reciprocal_gaps(w) * inner)
        return np.real(np.diagonal(inner, 0, -2, -1)), dv + v * phase_on(v, dv) if np.iscomplexobj(plain(v)) else dv

    return [vjp], [jvp]


def _one_triangle(g: Any, UPLO: str) -> Any:
    """The cotangent of a symmetric matrix of which only one triangle is read."""
    both = g + adjoint(g)
    triangle = np.tril(both, -1) if UPLO == "L" else np.triu(both, 1)
    return triangle + np.eye(np.shape(g)[-1]) * np.real(both) / 2


def _from_triangle(t: Any, UPLO: str) -> Any:
    strict = np.tril(t, -1) if UPLO == "L" else np.triu(t, 1)
    return strict + adjoint(strict) + np.eye(np.shape(t)[-1]) * np.real(t)


@composed(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return np.linalg.eigh(a, UPLO)[0]


@rule(np.linalg.svd)
def svd(y: Any, x: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular vectors need ``full_matrices=False`` where the matrix is not square."""
    if hermitian or (compute_uv and full_matrices and np.shape(x)[-1] != np.shape(x)[-2]):
        raise refuse(
            "np.linalg.svd with full_matrices=True or hermitian=True has no derivative rule",
            "Say full_matrices=False, or compute_uv=False for the values alone",
        )
    if not compute_uv:
        return _svd_values(x)
    if np.iscomplexobj(plain(x)):
        return complex_svd(y, x)
    u, s, vh = y

    def vjp(gs: Any) -> Any:
        gu, g, gv = gs
        inner = 0.0 * np.eye(np.shape(s)[-1]) if g is None else g[..., None] * np.eye(np.shape(s)[-1])
        gaps = reciprocal_gaps(s * s)
        if gu is not None:
            skew = gaps * (turn(u) @ gu)
            inner = inner + (skew + turn(skew)) * s[..., None, :]
        if gv is not None:
            skew = gaps * (vh @ turn(gv))
            inner = inner + s[..., :, None] * (skew + turn(skew))
        result = u @ inner @ vh
        if gu is not None:
            rest = gu / s[..., None, :]
            result = result + (rest - u @ (turn(u) @ rest)) @ vh
        if gv is not None:
            rest = gv / s[..., :, None]
            result = result + u @ (rest - (rest @ turn(vh)) @ vh)
        return result

    def jvp(t: Any) -> Any:
        inner = turn(u) @ t @ turn(vh)
        gaps = reciprocal_gaps(s * s)
        across, down = s[..., None, :], s[..., :, None]
        du = u @ (gaps * (inner * across + down * turn(inner)))
        dv = turn(vh) @ (gaps * (down * inner + turn(inner) * across))
        beside = t @ turn(vh) - u @ inner
        below = turn(t) @ u - turn(vh) @ turn(inner)
        return du + beside / across, np.diagonal(inner, 0, -2, -1), turn(dv + below / across)

    return [vjp], [jvp]


def _svd_values(x: Any) -> Any:
    def slope() -> Any:
        u, _, vh = np.linalg.svd(x, full_matrices=False)
        return u, vh

    def vjp(g: Any) -> Any:
        u, vh = slope()
        return (np.conjugate(u) * g[..., None, :]) @ np.conjugate(vh)

    def jvp(t: Any) -> Any:
        u, vh = slope()
        return np.real(np.diagonal(adjoint(u) @ t @ adjoint(vh), 0, -2, -1))

    return [vjp], [jvp]


@composed(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    return np.linalg.svd(x, compute_uv=False)


@rule(np.linalg.pinv)
def pinv(y: Any, x: Any, rcond: Any = None, hermitian: bool = False) -> Any:
    """For matrices of full rank. Golub and Pereyra (1973)."""
    real_only(np.linalg.pinv, x)

    def jvp(t: Any) -> Any:
        m, n = np.shape(x)[-2:]
        first = -(y @ t @ y)
        second = y @ turn(y) @ turn(t) @ (np.eye(m) - x @ y)
        return first + second + (np.eye(n) - y @ x) @ turn(t) @ turn(y) @ y

    def vjp(g: Any) -> Any:
        m, n = np.shape(x)[-2:]
        back = turn(y)
        first = -(back @ g @ back)
        second = (np.eye(m) - x @ y) @ turn(g) @ y @ back
        return first + second + back @ y @ turn(g) @ (np.eye(n) - y @ x)

    return [vjp], [jvp]


@composed(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """For matrices of full column rank."""
    solution = np.linalg.pinv(a) @ b
    m, n = np.shape(a)
    if np.linalg.matrix_rank(plain(a)) < n:
        raise refuse("np.linalg.lstsq of a matrix without full column rank has no derivative rule", "Regularise it")
    rest = np.sum(np.square(np.reshape(b - a @ solution, (m, -1))), axis=0) if m > n else np.zeros(0)
    return solution, rest, n, np.linalg.svd(a, compute_uv=False)
