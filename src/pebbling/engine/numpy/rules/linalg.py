"""Linear algebra on matrices and stacks of them: solving, determinants, powers, norms."""

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
