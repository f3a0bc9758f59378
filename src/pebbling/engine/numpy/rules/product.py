"""Products of matrices and tensors."""

from __future__ import annotations

import operator
from string import ascii_letters
from typing import Any

import numpy as np

from ..pulls import ADD
from ..refuse import refuse
from ..table import composed, primitive, rule

BOTH = slice(2)


BLOCK = 16 * 1024
"""Elements of an outer product that are computed at a time where it is added to a sum."""


def _turn(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _add_outer(total: np.ndarray, g: np.ndarray, b: np.ndarray) -> None:
    """``total += g[:, None] * b`` without ever having the whole product."""
    rows = max(1, BLOCK // b.size)
    for start in range(0, g.size, rows):
        part = total[start : start + rows]
        np.add(part, g[start : start + rows, None] * b, part)


@rule(np.matmul, operator.matmul, arrays=BOTH)
def matmul(y: Any, a: Any, b: Any) -> Any:
    first, second = np.ndim(a), np.ndim(b)

    def left(g: Any) -> Any:
        if second == 1:
            return g[..., None] * b
        return np.matmul(g[..., None, :], _turn(b))[..., 0, :] if first == 1 else np.matmul(g, _turn(b))

    def right(g: Any) -> Any:
        if first == 1:
            return np.multiply.outer(a, g) if second < 3 else a[:, None] * g[..., None, :]
        if second == 1 and first > 2:
            return np.sum(a * g[..., None], axis=tuple(range(np.ndim(g))))
        return np.matmul(_turn(a), g)

    plain = type(a) is type(b) is np.ndarray and a.dtype is b.dtype
    if plain and first == 2 and second == 1 and a.size > BLOCK:
        setattr(left, ADD, lambda total, g: _add_outer(total, g, b))
    return [left, right], [lambda t: np.matmul(t, b), lambda t: np.matmul(a, t)]


@rule(np.dot, arrays=BOTH)
def dot(y: Any, a: Any, b: Any, out: Any = None) -> Any:
    first, second = np.ndim(a), np.ndim(b)

    def left(g: Any) -> Any:
        if first == 0 or second == 0:
            return g * b
        if second == 1:
            return g[..., None] * b
        others = [i for i in range(second) if i != second - 2]
        return np.tensordot(g, b, (list(range(first - 1, first + second - 2)), others))

    def right(g: Any) -> Any:
        if first == 0 or second == 0:
            return g * a
        lead = list(range(first - 1))
        product = np.tensordot(a, g, (lead, lead))
        return product if second == 1 else np.moveaxis(product, 0, -2)

    return [left, right], [lambda t: np.dot(t, b), lambda t: np.dot(a, t)]


@rule(np.inner, arrays=BOTH)
def inner(y: Any, a: Any, b: Any) -> Any:
    first, second = np.ndim(a), np.ndim(b)

    def left(g: Any) -> Any:
        if first == 0 or second == 0:
            return g * b
        return np.tensordot(g, b, (list(range(first - 1, first + second - 2)), list(range(second - 1))))

    def right(g: Any) -> Any:
        if first == 0 or second == 0:
            return g * a
        lead = list(range(first - 1))
        return np.tensordot(g, a, (lead, lead))

    return [left, right], [lambda t: np.inner(t, b), lambda t: np.inner(a, t)]


@composed(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@composed(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    return np.dot(np.conjugate(np.ravel(a)), np.ravel(b))


@composed(np.vecdot)
def vecdot(x1: Any, x2: Any) -> Any:
    return np.sum(np.conjugate(x1) * x2, axis=-1)


@composed(np.tensordot, exact=True)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int | np.integer):
        axes = (list(range(-int(axes), 0)), list(range(int(axes))))
    along_a, along_b = [
        [i % max(np.ndim(x), 1) for i in (along if np.iterable(along) else [along])] for x, along in zip((a, b), axes)
    ]
    free_a = [i for i in range(np.ndim(a)) if i not in along_a]
    free_b = [i for i in range(np.ndim(b)) if i not in along_b]
    kept = [np.shape(a)[i] for i in free_a] + [np.shape(b)[i] for i in free_b]
    summed = int(np.prod([np.shape(a)[i] for i in along_a], dtype=int))
    left = np.reshape(np.transpose(a, free_a + along_a), (-1, summed) if np.size(a) else (0, summed))
    right = np.reshape(np.transpose(b, along_b + free_b), (summed, -1) if np.size(b) else (summed, 0))
    return np.reshape(np.dot(left, right), kept)


@composed(np.einsum, exact=True)
def einsum(*operands: Any, **kwargs: Any) -> Any:
    """Lists of indices, ``np.einsum(a, [0, 1], b, [1], [0])``, are put into letters."""
    if isinstance(operands[0], str):
        return contracted(*operands, **kwargs)
    arrays, lists = list(operands[: len(operands) // 2 * 2 : 2]), list(operands[1::2])
    dots = [["..." if i is Ellipsis else ascii_letters[i] for i in names] for names in lists]
    subscripts = ",".join(map("".join, dots))
    if len(operands) % 2:
        subscripts += "->" + "".join("..." if i is Ellipsis else ascii_letters[i] for i in operands[-1])
    return contracted(subscripts, *arrays, **kwargs)


@primitive(np.einsum, arrays=slice(1, None))
def contracted(y: Any, subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    inputs, output = explicit(subscripts, [np.ndim(x) for x in operands])

    def vjp(k: int) -> Any:
        def pull(g: Any) -> Any:
            terms = [(output, g)] + [(names, x) for i, (names, x) in enumerate(zip(inputs, operands)) if i != k]
            target = ""
            for name, size in zip(inputs[k], np.shape(operands[k])):
                known = any(name in names for names, _ in terms)
                if name in target:
                    twin = next(c for c in ascii_letters if c not in target + output + "".join(inputs))
                    terms.append((name + twin, np.eye(size)))
                    name = twin
                elif not known:
                    terms.append((name, np.ones(size)))
                target += name
            return np.einsum(",".join([n for n, _ in terms]) + "->" + target, *[x for _, x in terms], optimize=optimize)

        return pull

    def jvp(k: int) -> Any:
        return lambda t: np.einsum(subscripts, *operands[:k], t, *operands[k + 1 :], optimize=optimize)

    count = range(len(operands))
    return [vjp(k) for k in count], [jvp(k) for k in count]


def explicit(subscripts: str, ndims: list[int]) -> tuple[list[str], str]:
    """The indices of every operand and of the result, with ``...`` and an implied result written out."""
    subscripts = subscripts.replace(" ", "")
    left, arrow, output = subscripts.partition("->")
    inputs = left.split(",")
    free = [c for c in ascii_letters if c not in subscripts]
    most = max([n - len(names.replace("...", "")) for names, n in zip(inputs, ndims) if "..." in names], default=0)
    dots = "".join(free[:most])
    spelled = []
    for names, ndim in zip(inputs, ndims):
        hidden = ndim - len(names.replace("...", ""))
        spelled.append(names.replace("...", dots[most - hidden :] if hidden else ""))
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        output = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return spelled, output.replace("...", dots)


@composed(np.kron)
def kron(a: Any, b: Any) -> Any:
    ndim = max(np.ndim(a), np.ndim(b))
    a, b = [np.reshape(x, (1,) * (ndim - np.ndim(x)) + np.shape(x)) for x in (a, b)]
    left = np.reshape(a, [n for size in np.shape(a) for n in (size, 1)])
    right = np.reshape(b, [n for size in np.shape(b) for n in (1, size)])
    return np.reshape(left * right, [m * n for m, n in zip(np.shape(a), np.shape(b))])


@composed(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(a, axisa, 0), np.moveaxis(b, axisb, 0)
    if len(a) != 3 or len(b) != 3:
        raise refuse("np.cross of vectors of two components has no derivative rule", "Give them a third one of zero")
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return np.moveaxis(np.stack(parts), 0, axisc)


@composed(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)
