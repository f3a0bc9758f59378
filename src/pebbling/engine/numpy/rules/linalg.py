"""Linear algebra, on matrices and stacks of them. Decompositions: Giles, "An extended collection of matrix
derivative results for forward and reverse mode algorithmic differentiation" (2008).

Eigenvectors and singular vectors have a derivative only where the values are distinct; the values of ``eigh``
and ``svd`` have one everywhere but where they meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, real_only, rule
from ..traced import plain

BOTH = slice(2)


def _turn(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


@rule(np.linalg.inv)
def inv(y: Any, x: Any) -> Any:
    back = _turn(y)
    return [lambda g: -(back @ g @ back)], [lambda t: -(y @ t @ y)]


@rule(np.linalg.solve, arrays=BOTH)
def solve(y: Any, a: Any, b: Any) -> Any:
    vector = np.ndim(b) == 1

    def left(g: Any) -> Any:
        rhs = np.linalg.solve(_turn(a), g)
        return -(rhs[..., :, None] * y[..., None, :]) if vector else -(rhs @ _turn(y))

    def push(t: Any) -> Any:
        return -np.linalg.solve(a, t @ y)

    return [left, lambda g: np.linalg.solve(_turn(a), g)], [push, lambda t: np.linalg.solve(a, t)]


@rule(np.linalg.det)
def det(y: Any, x: Any) -> Any:
    def slope() -> Any:
        return np.reshape(y, (*np.shape(y), 1, 1)) * _turn(np.linalg.inv(x))

    return (
        [lambda g: np.reshape(g, (*np.shape(g), 1, 1)) * slope()],
        [lambda t: np.sum(t * slope(), axis=(-2, -1))],
    )


@rule(np.linalg.slogdet)
def slogdet(y: Any, x: Any) -> Any:
    real_only(np.linalg.slogdet, x)

    def vjp(gs: Any) -> Any:
        g = gs[1]
        back = _turn(np.linalg.inv(x))
        return np.zeros(np.shape(x)) if g is None else np.reshape(g, (*np.shape(g), 1, 1)) * back

    return [vjp], [lambda t: (None, np.sum(t * _turn(np.linalg.inv(x)), axis=(-2, -1)))]


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


@composed(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        a, n = np.linalg.inv(a), -n
    result = None
    while n:
        if n % 2:
            result = a if result is None else result @ a
        n //= 2
        if n:
            a = a @ a
    return np.broadcast_to(np.eye(np.shape(a)[-1]), np.shape(a)) + 0 * a if result is None else result


@composed(np.linalg.multi_dot)
def multi_dot(arrays: Any) -> Any:
    result = arrays[0]
    for array in arrays[1:]:
        result = np.dot(result, array)
    return result


@composed(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is None and (ord is None or np.ndim(x) == 1):
        flat = np.ravel(x)
        result = _vector_norm(flat, ord, 0, False)
        return np.reshape(result, (1,) * np.ndim(x)) if keepdims else result
    axes = axis if isinstance(axis, tuple) else (axis,) if axis is not None else (-2, -1)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    return _matrix_norm(x, ord, [a % np.ndim(x) for a in axes], keepdims)


def _vector_norm(x: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    size = np.abs(x)
    if ord is None or ord == 2:
        return _root(np.sum(np.real(np.conjugate(x) * x), axis=axis, keepdims=keepdims))
    if ord == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _root(square: Any) -> Any:
    """A square root whose slope at zero is zero, which is the smallest of the subgradients of a norm."""
    zero = plain(square) == 0
    return np.where(zero, 0, np.sqrt(np.where(zero, 1, square)))


def _matrix_norm(x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if ord in (None, "fro"):
        return _root(np.sum(np.real(np.conjugate(x) * x), axis=tuple(axes), keepdims=keepdims))
    rows = np.moveaxis(x, axes, (-2, -1))
    if ord in (2, -2, "nuc"):
        values = np.linalg.svd(rows, compute_uv=False)
        reduce: Any = {2: np.max, -2: np.min, "nuc": np.sum}[ord]
        result = reduce(values, axis=-1)
    elif ord in (1, -1, np.inf, -np.inf):
        sums = np.sum(np.abs(rows), axis=-2 if ord in (1, -1) else -1)
        result = np.max(sums, axis=-1) if ord > 0 else np.min(sums, axis=-1)
    else:
        raise refuse(f"np.linalg.norm with ord={ord!r} has no derivative rule", "1, 2, inf, 'fro' and 'nuc' have one")
    return np.expand_dims(result, tuple(axes)) if keepdims else result
