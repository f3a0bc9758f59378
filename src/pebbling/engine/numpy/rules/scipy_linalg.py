"""``scipy.linalg``: systems of equations, their factors, and the exponential of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg  # type: ignore[import-untyped]

from ..foreign import formula, is_traced, own_rule, refused_where_traced
from ..refuse import refuse
from ..standins import current, stand_in
from ..table import primitive
from ..traced import plain

BOTH = slice(2)


def _symmetric(a: Any, lower: bool) -> Any:
    """The matrix that a function sees which reads one triangle alone."""
    triangle = np.tril(a, -1) if lower else np.triu(a, 1)
    return triangle + np.swapaxes(triangle, -1, -2) + np.eye(np.shape(a)[-1]) * a


def _turned(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


@formula(linalg, "solve")
def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    check_finite: bool = True, assume_a: Any = None, transposed: bool = False,
) -> Any:  # fmt: skip
    if assume_a in ("sym", "symmetric", "her", "hermitian", "pos", "positive definite"):
        a = _symmetric(a, lower)
    a = _turned(a) if transposed else a
    return np.linalg.solve(a, b[:, None])[:, 0] if np.ndim(b) == 1 else np.linalg.solve(a, b)


@formula(linalg, "inv")
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True, **kwargs: Any) -> Any:
    return np.linalg.inv(a)


@formula(linalg, "det")
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.det(a)


@formula(linalg, "pinv")
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.pinv(a)


@formula(linalg, "norm")
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.norm(a, ord, axis, keepdims)


@formula(linalg, "eigvalsh")
def eigvalsh(a: Any, b: Any = None, *, lower: bool = True, **kwargs: Any) -> Any:
    if b is not None:
        raise refuse("scipy.linalg.eigvalsh of two matrices has no derivative rule", "Use np.linalg.solve and eigvals")
    return np.linalg.eigvalsh(a, "L" if lower else "U")


@formula(linalg, "svdvals")
def svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.svd(a, compute_uv=False)


def _factor(a: Any, lower: bool) -> Any:
    factor = np.linalg.cholesky(_symmetric(a, lower))
    return factor if lower else _turned(factor)


@formula(linalg, "cholesky")
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    return _factor(a, lower)


@formula(linalg, "cho_factor")
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    rest = np.triu(a, 1) if lower else np.tril(a, -1)
    return _factor(a, lower) + rest, lower


@formula(linalg, "cho_solve")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    c, lower = c_and_lower
    first, last = ("N", "T") if lower else ("T", "N")
    return linalg.solve_triangular(c, linalg.solve_triangular(c, b, first, lower), last, lower)


def _trans(trans: Any) -> int:
    return {"N": 0, "T": 1, "C": 2}.get(trans, trans)


@own_rule(linalg, "solve_triangular", BOTH)
def solve_triangular(
    y: Any, a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    trans = _trans(trans)
    if np.iscomplexobj(plain(a)) and trans == 2:
        raise refuse("scipy.linalg.solve_triangular with trans=2 has no derivative rule", "Conjugate the matrix")

    def again(b: Any, turned: bool) -> Any:
        return linalg.solve_triangular(a, b, int(bool(trans) != turned), lower, unit_diagonal)

    def read(m: Any) -> Any:
        return np.tril(m, -1 if unit_diagonal else 0) if lower else np.triu(m, 1 if unit_diagonal else 0)

    def of_a(g: Any) -> Any:
        g, x = again(g, True), y
        if np.ndim(x) == 1:
            g, x = g[:, None], x[:, None]
        outer = -(g @ _turned(x))
        return read(_turned(outer) if trans else outer)

    def along_a(t: Any) -> Any:
        t = read(t)
        return -again((_turned(t) if trans else t) @ y, False)

    return [of_a, lambda g: again(g, True)], [along_a, lambda t: again(t, False)]


def _order(piv: Any) -> Any:
    order = np.arange(len(piv))
    for i, j in enumerate(piv):
        order[[i, j]] = order[[j, i]]
    return order


_factored = current(linalg, "lu_factor")


def _lu(a: Any, piv: Any) -> Any:
    return _factored(a)[0]


@primitive(_lu)
def packed(y: Any, a: Any, piv: Any) -> Any:
    """Both factors in one matrix, as LAPACK has them."""
    order = _order(piv)
    back = np.argsort(order)
    unit = np.eye(np.shape(a)[-1])

    def inner(m: Any) -> Any:
        left = linalg.solve_triangular(y, m, 0, True, True)
        return linalg.solve_triangular(y, left.T, 1, False).T

    def jvp(t: Any) -> Any:
        m = inner(t[order])
        return (np.tril(y, -1) + unit) @ np.tril(m, -1) + np.triu(m) @ np.triu(y)

    def vjp(g: Any) -> Any:
        lower, upper = np.tril(y, -1) + unit, np.triu(y)
        m = np.tril(lower.T @ np.tril(g, -1), -1) + np.triu(np.triu(g) @ upper.T)
        m = linalg.solve_triangular(y, m, 1, True, True)
        return linalg.solve_triangular(y, m.T, 0, False).T[back]

    return [vjp], [jvp]


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Factors of a square matrix, and the order of its rows."""
    if not is_traced(a):
        return _factored(getattr(a, "value", a), False, check_finite)
    piv = _factored(plain(a))[1]
    return packed(a, piv), piv


stand_in(linalg, "lu_factor", lu_factor)


@formula(linalg, "lu_solve")
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    lu, piv = lu_and_piv
    order = _order(plain(piv))
    if _trans(trans):
        y = linalg.solve_triangular(lu, linalg.solve_triangular(lu, b, 1, False), 1, True, True)
        return y[np.argsort(order)]
    return linalg.solve_triangular(lu, linalg.solve_triangular(lu, b[order], 0, True, True), 0, False)


def _bands(l_and_u: Any, n: int) -> Any:
    """Where the elements of a banded matrix stand: in the bands, by row, by column, and which are there."""
    lower, upper = l_and_u
    column = np.arange(n)[None, :]
    row = np.arange(lower + upper + 1)[:, None] + column - upper
    return np.clip(row, 0, n - 1), np.broadcast_to(column, row.shape), (row >= 0) & (row < n)


@own_rule(linalg, "solve_banded", slice(1, 3))
def solve_banded(
    y: Any, l_and_u: Any, ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    lower, upper = l_and_u
    row, column, there = _bands(l_and_u, np.shape(ab)[-1])
    back = np.arange(lower + upper, -1, -1)[:, None]
    others, _, theirs = _bands((upper, lower), np.shape(ab)[-1])

    def turned(g: Any) -> Any:
        # The element in row d and column j of the bands of the transposed matrix is that in column `others` here.
        bands = np.where(theirs, ab[back, others], 0.0)
        return linalg.solve_banded((upper, lower), bands, g)

    def of_bands(g: Any) -> Any:
        product = turned(g)[row] * y[column]
        return -np.where(there, product if np.ndim(y) == 1 else np.sum(product, axis=-1), 0.0)

    def along_bands(t: Any) -> Any:
        product = np.where(there, t, 0.0)[..., *(None,) * (np.ndim(y) - 1)] * y[column]
        whole = np.zeros_like(y)
        np.add.at(whole, row, product)
        return -linalg.solve_banded(l_and_u, ab, whole)

    return [of_bands, turned], [along_bands, lambda t: linalg.solve_banded(l_and_u, ab, t)]


@formula(linalg, "solveh_banded")
def solveh_banded(
    ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False, lower: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    width = np.shape(ab)[0] - 1
    rows = []
    for k in range(width, -width - 1, -1):  # the k-th diagonal above the main one
        near = ab[abs(k)] if lower else ab[width - abs(k)]
        rows.append(np.roll(near, k) if (k > 0) == lower and k else near)
    return linalg.solve_banded((width, width), np.stack(rows), b)


@own_rule(linalg, "expm")
def expm(y: Any, A: Any) -> Any:
    n = np.shape(A)[-1]

    def along(a: Any, t: Any) -> Any:
        zero = np.zeros((n, n))
        return linalg.expm(np.concatenate([np.concatenate([a, t], 1), np.concatenate([zero, a], 1)]))[:n, n:]

    if np.ndim(A) != 2:
        raise refuse("scipy.linalg.expm of a stack of matrices has no derivative rule", "Call it for one at a time")
    return [lambda g: along(_turned(A), g)], [lambda t: along(A, t)]


def _by_places(name: str) -> None:
    """A matrix of the elements of a vector: numbers are placed first, and then the elements by number."""
    original = current(linalg, name)

    @formula(linalg, name, exact=True)
    def made(c: Any, r: Any = None) -> Any:
        parts = [np.ravel(c)] if r is None else [np.ravel(c), np.ravel(r)]
        numbers = [np.arange(np.size(plain(c)))]
        if r is not None:
            numbers.append(np.size(plain(c)) + np.arange(np.size(plain(r))))
        whole = np.concatenate(parts) if r is not None else parts[0]
        return np.take(whole, original(*numbers))


for name in ("toeplitz", "circulant"):
    _by_places(name)


@formula(linalg, "block_diag", exact=True)
def block_diag(*arrs: Any) -> Any:
    blocks = [np.atleast_2d(one) for one in arrs]
    widths = [np.shape(one)[1] for one in blocks]
    rows = [np.pad(one, ((0, 0), (sum(widths[:i]), sum(widths[i + 1 :])))) for i, one in enumerate(blocks)]
    return np.concatenate(rows)


refused_where_traced(
    linalg,
    "eig eigvals eigh svd qr lu ldl schur hessenberg sqrtm logm cosm sinm tanm signm fractional_matrix_power lstsq "
    "polar null_space orth solve_sylvester solve_continuous_are solve_discrete_are solve_continuous_lyapunov "
    "solve_discrete_lyapunov matrix_balance qz rq hankel solve_toeplitz solve_circulant eig_banded eigh_tridiagonal",
    "np.linalg has eigh, eig, svd and qr with derivatives; stop_gradient(x) passes a value on without its derivative",
)
