"""Eigenvalues of general matrices, QR, and complex ``eigh`` and ``svd``.

An eigenvector is known up to a factor, and the derivative keeps to the one that LAPACK chooses: vectors of length
one, and for complex ones the largest component real (``eig``), or the first or last (``eigh``, ``svd``, because
the reflectors that make the matrix tridiagonal or bidiagonal leave that coordinate alone). Where a complex vector
shows no such mark, a gradient that depends on its phase is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, real_only, rule
from ..traced import plain


def turn(x: Any) -> Any:
    """The transpose of every matrix."""
    return np.swapaxes(x, -1, -2)


def adjoint(x: Any) -> Any:
    """The conjugate transpose of every matrix."""
    return np.conjugate(turn(x)) if np.iscomplexobj(plain(x)) else turn(x)


def reciprocal_gaps(w: Any) -> Any:
    """1 / (w_j - w_i), zero on the diagonal."""
    n = np.shape(w)[-1]
    gaps = w[..., None, :] - w[..., :, None] + np.eye(n)
    return (1 - np.eye(n)) / gaps


def _largest(v: Any) -> Any:
    """Ones where each column has its largest component."""
    size = np.abs(plain(v))
    rows = np.reshape(np.arange(size.shape[-2]), (-1, 1))
    return (rows == np.argmax(size, axis=-2)[..., None, :]).astype(float)


@rule(np.linalg.eig)
def eig(y: Any, x: Any) -> Any:
    w, v = y

    def vjp(gs: Any) -> Any:
        gw, gv = gs
        inner: Any = 0.0
        if gw is not None:
            inner = gw[..., None] * np.eye(np.shape(w)[-1])
        if gv is not None:
            along = np.sum(gv * v, axis=-2, keepdims=True)
            gv = gv - np.real(along) * np.conjugate(v)
            if np.iscomplexobj(plain(v)):
                top = _largest(v)
                gv = gv - 1j * top * np.imag(along) / np.sum(top * np.real(v), axis=-2, keepdims=True)
            inner = inner + reciprocal_gaps(w) * (turn(v) @ gv)
        return np.linalg.solve(turn(v), inner @ turn(v))

    def jvp(t: Any) -> Any:
        inner = np.linalg.solve(v, t @ v)
        dv = v @ (reciprocal_gaps(w) * inner)
        shift = -np.real(np.sum(np.conjugate(v) * dv, axis=-2, keepdims=True))
        if np.iscomplexobj(plain(v)):
            top = _largest(v)
            turned = np.sum(top * np.imag(dv), axis=-2, keepdims=True)
            shift = shift - 1j * turned / np.sum(top * np.real(v), axis=-2, keepdims=True)
        return np.diagonal(inner, 0, -2, -1), dv + v * shift

    return [vjp], [jvp]


@rule(np.linalg.eigvals)
def eigvals(y: Any, x: Any) -> Any:
    def vjp(g: Any) -> Any:
        w, v = np.linalg.eig(x)
        return np.linalg.solve(turn(v), (g[..., _order(w, y)] * np.ones(1))[..., None] * turn(v))

    def jvp(t: Any) -> Any:
        w, v = np.linalg.eig(x)
        changes = np.diagonal(np.linalg.solve(v, t @ v), 0, -2, -1)
        return changes[..., np.argsort(_order(w, y))]

    return [vjp], [jvp]


def _order(w: Any, y: Any) -> Any:
    """Where each eigenvalue of ``eig`` stands among those of ``eigvals``; LAPACK may find them in another order."""
    w, y = plain(w), plain(y)
    if w.ndim > 1:
        if not np.allclose(w, y, rtol=1e-6):
            raise refuse("np.linalg.eigvals of a stack of matrices has no derivative rule here", "Use np.linalg.eig")
        return np.arange(w.shape[-1])
    left, order = list(range(len(y))), []
    for value in w:
        order.append(min(left, key=lambda k: abs(y[k] - value)))
        left.remove(order[-1])
    return np.array(order, int)


def free_of_phase(name: str, along: Any, size: Any) -> None:
    """Refuse a cotangent of complex vectors that says how their phases matter."""
    along, size = plain(along), plain(size)
    if np.iscomplexobj(along) and np.any(np.abs(np.imag(along)) > 1e-6 * (np.max(np.abs(size), initial=0.0) + 1e-300)):
        raise refuse(
            f"the phases of the complex vectors of {name} are not fixed, and this result depends on them",
            "Multiply each vector by a factor that fixes its phase, or use what doesn't depend on it",
        )


def pinned(v: Any) -> Any:
    """Ones where each complex column has the component that LAPACK keeps real; none where there is no such mark."""
    plain_v = plain(v)
    for row in (0, -1):
        if not np.any(np.imag(plain_v[..., row, :])):
            marks = np.zeros(plain_v.shape)
            marks[..., row, :] = plain_v[..., row, :] != 0
            return marks
    return None


def phase_back(name: str, v: Any, gv: Any, along: Any) -> Any:
    """The cotangent of complex columns when their phase is what keeps the marked component real.

    ``along`` is the sum of cotangents times vectors, the change of the result with the phase.
    """
    marks = pinned(v)
    open_ = along if marks is None else along * (1 - np.max(marks, axis=-2, keepdims=True))
    free_of_phase(name, open_, along)
    return gv if marks is None else gv - 1j * marks * np.imag(along) / _marked(v, marks)


def phase_on(v: Any, dv: Any) -> Any:
    """How fast the phases turn, times the imaginary unit, so that the marked components stay real."""
    marks = pinned(v)
    if marks is None or not np.all(np.max(marks, axis=-2)):
        raise refuse(
            "the phases of these complex vectors are not fixed, and forward mode can't tell whether they matter",
            "Take the gradient, or use the values alone",
        )
    return -1j * np.sum(marks * np.imag(dv), axis=-2, keepdims=True) / _marked(v, marks)


def _marked(v: Any, marks: Any) -> Any:
    return np.sum(marks * np.real(v), axis=-2, keepdims=True) + (1 - np.max(marks, axis=-2, keepdims=True))


def complex_svd(y: Any, x: Any) -> Any:
    """Wan and Zhang, "Automatic differentiation for complex valued SVD" (2019)."""
    u, s, vh = y
    v = adjoint(vh)
    gaps = reciprocal_gaps(s * s)
    eye = np.eye(np.shape(s)[-1])

    def vjp(gs: Any) -> Any:
        gu, g, gvh = gs
        along: Any = 0.0
        if gu is not None:
            along = along + np.sum(gu * u, axis=-2, keepdims=True)
        if gvh is not None:
            along = along + np.sum(np.conjugate(turn(gvh)) * v, axis=-2, keepdims=True)
        if gu is not None or gvh is not None:
            first = pinned(v) is not None
            if first:
                gv = 0 * v if gvh is None else np.conjugate(turn(gvh))
                gvh = np.conjugate(turn(phase_back("np.linalg.svd", v, gv, along)))
            else:
                gu = phase_back("np.linalg.svd", u, 0 * u if gu is None else gu, along)
        inner: Any = 0.0 * eye if g is None else g[..., None] * eye
        left: Any = 0.0
        right: Any = 0.0
        if gu is not None:
            bar = np.conjugate(gu)
            left = adjoint(u) @ bar
            skew = gaps * left
            inner = inner + (skew + adjoint(skew)) * s[..., None, :]
        if gvh is not None:
            bar_v = turn(gvh)
            right = adjoint(v) @ bar_v
            skew = gaps * right
            inner = (
                inner
                + s[..., :, None] * (skew + adjoint(skew))
                + (adjoint(right) - right) * eye / (2 * s[..., :, None])
            )
        result = u @ inner @ vh
        if gu is not None:
            rest = np.conjugate(gu) / s[..., None, :]
            result = result + (rest - u @ (adjoint(u) @ rest)) @ vh
        if gvh is not None:
            rest = np.conjugate(gvh) / s[..., :, None]
            result = result + u @ (rest - (rest @ v) @ vh)
        return np.conjugate(result)

    def jvp(t: Any) -> Any:
        inner = adjoint(u) @ t @ v
        across, down = s[..., None, :], s[..., :, None]
        du = u @ (gaps * (inner * across + down * adjoint(inner)) + 1j * np.imag(inner) * eye / (2 * across))
        dv = v @ (gaps * (down * inner + adjoint(inner) * across) - 1j * np.imag(inner) * eye / (2 * across))
        beside = t @ v - u @ inner
        below = adjoint(t) @ u - v @ adjoint(inner)
        du, dv = du + beside / across, dv + below / across
        turned = phase_on(v, dv) if pinned(v) is not None else phase_on(u, du)
        return du + u * turned, np.real(np.diagonal(inner, 0, -2, -1)), adjoint(dv + v * turned)

    return [vjp], [jvp]


@rule(np.linalg.qr)
def qr(y: Any, x: Any, mode: Any = "reduced") -> Any:
    """Of matrices with at least as many rows as columns, by the reduced factors."""
    real_only(np.linalg.qr, x)
    rows, columns = np.shape(x)[-2:]
    if mode not in ("reduced", "r") or rows < columns:
        raise refuse(
            f"np.linalg.qr of {rows} x {columns} with mode={mode!r} has no derivative rule",
            "mode='reduced' and 'r' of matrices with at least as many rows as columns have one",
        )
    q, r = y if mode == "reduced" else (turn(np.linalg.solve(turn(y), turn(x))), y)

    def vjp(gs: Any) -> Any:
        gq, gr = gs if mode == "reduced" else (None, gs)
        inner: Any = 0.0
        outer: Any = 0.0
        if gr is not None:
            inner = r @ turn(gr)
        if gq is not None:
            inner, outer = inner - turn(gq) @ q, gq
        lower = np.tril(inner)
        whole = outer + q @ (lower + turn(np.tril(inner, -1)))
        return turn(np.linalg.solve(r, turn(whole)))

    def jvp(t: Any) -> Any:
        scaled = turn(np.linalg.solve(turn(r), turn(t)))
        inner = turn(q) @ scaled
        skew = np.tril(inner, -1) - turn(np.tril(inner, -1))
        dr = (inner - skew) @ r
        return (q @ skew + scaled - q @ inner, dr) if mode == "reduced" else dr

    return [vjp], [jvp]


@composed(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    shape = np.shape(a)
    size = int(np.prod(shape[:ind]))
    return np.reshape(np.linalg.inv(np.reshape(a, (size, -1))), shape[ind:] + shape[:ind])


@composed(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    if axes is not None:
        others = [k for k in range(np.ndim(a)) if k not in [i % np.ndim(a) for i in axes]]
        a = np.transpose(a, others + list(axes))
    shape = np.shape(a)[np.ndim(b) :]
    return np.reshape(np.linalg.solve(np.reshape(a, (-1, int(np.prod(shape)))), np.ravel(b)), shape)


@composed(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    if p in (None, 2, -2):
        s = np.linalg.svd(x, compute_uv=False)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return np.linalg.norm(x, p, axis=(-2, -1)) * np.linalg.norm(np.linalg.inv(x), p, axis=(-2, -1))


@composed(np.linalg.diagonal, exact=True)
def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return np.diagonal(x, offset, -2, -1)
