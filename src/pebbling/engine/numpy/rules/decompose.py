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


def _turn(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


@rule(np.linalg.cholesky)
def cholesky(y: Any, x: Any, /, *, upper: bool = False) -> Any:
    real_only(np.linalg.cholesky, x)
    if upper:
        raise refuse("np.linalg.cholesky with upper=True has no derivative rule", "Transpose the lower factor")

    def half(a: Any) -> Any:
        n = np.shape(a)[-1]
        return np.tril(a) * (1 - 0.5 * np.eye(n))

    def vjp(g: Any) -> Any:
        inner = np.linalg.solve(_turn(y), half(_turn(y) @ g))
        whole = _turn(np.linalg.solve(_turn(y), _turn(inner)))
        return (whole + _turn(whole)) / 2

    def jvp(t: Any) -> Any:
        inner = np.linalg.solve(y, _turn(np.linalg.solve(y, _turn((t + _turn(t)) / 2))))
        return y @ half(inner)

    return [vjp], [jvp]


def _reciprocal_gaps(w: Any) -> Any:
    """1 / (w_j - w_i), zero on the diagonal."""
    n = np.shape(w)[-1]
    gaps = w[..., None, :] - w[..., :, None] + np.eye(n)
    return (1 - np.eye(n)) / gaps


@rule(np.linalg.eigh)
def eigh(y: Any, x: Any, UPLO: str = "L") -> Any:
    real_only(np.linalg.eigh, x)
    w, v = y

    def vjp(gs: Any) -> Any:
        gw, gv = gs
        inner: Any = 0.0
        if gw is not None:
            inner = gw[..., None] * np.eye(np.shape(w)[-1])
        if gv is not None:
            inner = inner + _reciprocal_gaps(w) * (_turn(v) @ gv)
        return _one_triangle(v @ inner @ _turn(v), UPLO)

    def jvp(t: Any) -> Any:
        inner = _turn(v) @ _from_triangle(t, UPLO) @ v
        return np.diagonal(inner, 0, -2, -1), v @ (_reciprocal_gaps(w) * inner)

    return [vjp], [jvp]


def _one_triangle(g: Any, UPLO: str) -> Any:
    """The cotangent of a symmetric matrix of which only one triangle is read."""
    both = g + _turn(g)
    triangle = np.tril(both, -1) if UPLO == "L" else np.triu(both, 1)
    return triangle + np.eye(np.shape(g)[-1]) * both / 2


def _from_triangle(t: Any, UPLO: str) -> Any:
    strict = np.tril(t, -1) if UPLO == "L" else np.triu(t, 1)
    return strict + _turn(strict) + np.eye(np.shape(t)[-1]) * t


@composed(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return np.linalg.eigh(a, UPLO)[0]


@rule(np.linalg.svd)
def svd(y: Any, x: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular vectors need ``full_matrices=False`` where the matrix is not square."""
    real_only(np.linalg.svd, x)
    if hermitian or (compute_uv and full_matrices and np.shape(x)[-1] != np.shape(x)[-2]):
        raise refuse(
            "np.linalg.svd with full_matrices=True or hermitian=True has no derivative rule",
            "Say full_matrices=False, or compute_uv=False for the values alone",
        )
    if not compute_uv:
        return _svd_values(x)
    u, s, vh = y

    def vjp(gs: Any) -> Any:
        gu, g, gv = gs
        inner = 0.0 * np.eye(np.shape(s)[-1]) if g is None else g[..., None] * np.eye(np.shape(s)[-1])
        gaps = _reciprocal_gaps(s * s)
        if gu is not None:
            skew = gaps * (_turn(u) @ gu)
            inner = inner + (skew + _turn(skew)) * s[..., None, :]
        if gv is not None:
            skew = gaps * (vh @ _turn(gv))
            inner = inner + s[..., :, None] * (skew + _turn(skew))
        result = u @ inner @ vh
        if gu is not None:
            rest = gu / s[..., None, :]
            result = result + (rest - u @ (_turn(u) @ rest)) @ vh
        if gv is not None:
            rest = gv / s[..., :, None]
            result = result + u @ (rest - (rest @ _turn(vh)) @ vh)
        return result

    def jvp(t: Any) -> Any:
        inner = _turn(u) @ t @ _turn(vh)
        gaps = _reciprocal_gaps(s * s)
        across, down = s[..., None, :], s[..., :, None]
        du = u @ (gaps * (inner * across + down * _turn(inner)))
        dv = _turn(vh) @ (gaps * (down * inner + _turn(inner) * across))
        beside = t @ _turn(vh) - u @ inner
        below = _turn(t) @ u - _turn(vh) @ _turn(inner)
        return du + beside / across, np.diagonal(inner, 0, -2, -1), _turn(dv + below / across)

    return [vjp], [jvp]


def _svd_values(x: Any) -> Any:
    def slope() -> Any:
        u, _, vh = np.linalg.svd(x, full_matrices=False)
        return u, vh

    def vjp(g: Any) -> Any:
        u, vh = slope()
        return (u * g[..., None, :]) @ vh

    def jvp(t: Any) -> Any:
        u, vh = slope()
        return np.diagonal(_turn(u) @ t @ _turn(vh), 0, -2, -1)

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
        second = y @ _turn(y) @ _turn(t) @ (np.eye(m) - x @ y)
        return first + second + (np.eye(n) - y @ x) @ _turn(t) @ _turn(y) @ y

    def vjp(g: Any) -> Any:
        m, n = np.shape(x)[-2:]
        back = _turn(y)
        first = -(back @ g @ back)
        second = (np.eye(m) - x @ y) @ _turn(g) @ y @ back
        return first + second + back @ y @ _turn(g) @ (np.eye(n) - y @ x)

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
