"""Polynomials by their coefficients, the highest power first (``np.poly*``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed
from ..traced import Traced, plain


def _aligned(a: Any, b: Any) -> tuple[Any, Any]:
    a, b = np.atleast_1d(a), np.atleast_1d(b)
    n = max(len(a), len(b))
    return np.pad(a, (n - len(a), 0)), np.pad(b, (n - len(b), 0))


@composed(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    left, right = _aligned(a1, a2)
    return left + right


@composed(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    left, right = _aligned(a1, a2)
    return left - right


@composed(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    return np.convolve(np.atleast_1d(a1), np.atleast_1d(a2))


@composed(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


@composed(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    constants = np.zeros(m) if k is None else np.broadcast_to(np.ravel(k), (m,))
    for i in range(m):
        p = np.concatenate([p / np.arange(len(p), 0, -1), np.reshape(constants[i], (1,))])
    return p


@composed(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    zeros = np.linalg.eigvals(seq_of_zeros) if np.ndim(seq_of_zeros) == 2 else np.atleast_1d(seq_of_zeros)
    p: Any = np.ones(1)
    for i in range(len(zeros)):
        p = np.concatenate([p, np.zeros(1)]) - zeros[i] * np.concatenate([np.zeros(1), p])
    return p if np.iscomplexobj(plain(seq_of_zeros)) else np.real(p)


@composed(np.roots)
def roots(p: Any) -> Any:
    """Simple roots."""
    value = np.roots(plain(p))
    if len(value) != len(p) - 1:
        raise refuse("np.roots of a polynomial with zeros at its ends has no derivative rule", "Cut them off")
    return _newton(p, value)


def _newton(p: Any, value: Any) -> Any:
    """Newton's steps at the roots have the derivatives of the roots: one more order with every step."""
    z, n = value, len(p) - 1
    for _ in range(3):
        powers = np.stack([z**k for k in range(n, -1, -1)], axis=1)
        z = z - (powers @ p) / (powers[:, 1:] @ (p[:-1] * np.arange(n, 0, -1)))
    return z


@composed(np.polyfit)
def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """Least squares by the pseudo-inverse of the scaled Vandermonde matrix."""
    if full or cov or np.ndim(deg):
        raise refuse("np.polyfit with full=, cov= or a list of degrees has no derivative rule", "Leave it out")
    points: Any = x if isinstance(x, Traced) else np.asarray(x)
    a = np.vander(points, deg + 1)
    if w is not None:
        a, y = a * np.reshape(w, (-1, 1)), y * np.reshape(w, (-1,) + (1,) * (np.ndim(y) - 1))
    scale = np.sqrt(np.sum(a * a, axis=0))
    solution = np.linalg.pinv(a / scale) @ y
    return solution / np.reshape(scale, (-1,) + (1,) * (np.ndim(y) - 1))
