"""Constant matrices of ``scipy.sparse`` times traced vectors and matrices, from both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse._base import _spbase  # type: ignore[import-untyped]

from ..refuse import refuse
from ..standins import stand_in
from ..table import primitive
from ..traced import Traced, plain


def _dot(x: Any, matrix: Any) -> Any:
    return matrix @ x


@primitive(_dot)
def dot(y: Any, x: Any, matrix: Any) -> Any:
    """``matrix @ x``."""
    return [lambda g: dot(g, matrix.T)], [lambda t: dot(t, matrix)]


def times(matrix: Any, x: Any) -> Any:
    """``matrix @ x``, with the checks of SciPy."""
    if x.ndim not in (1, 2) or x.shape[0] != matrix.shape[1]:
        raise ValueError(f"dimension mismatch: a sparse matrix of shape {matrix.shape} times {x.shape}")
    return dot(x, matrix)


def _of_method(name: str) -> None:
    original = vars(_spbase)[name]

    def method(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(other, Traced):
            return original(self, other, *args, **kwargs)
        if other.blank:
            return original(self, other.value, *args, **kwargs)
        if np.ndim(plain(other)) == 0 or name == "multiply":
            raise refuse(
                "a sparse matrix with differentiated elements has no derivative rule",
                "Multiply after the product with a vector (c * (A @ x)), or use an array (A.toarray())",
            )
        if name == "_rmatmul_dispatch":
            product = times(self.T, np.transpose(other))
            return np.transpose(product)
        return times(self, other)

    stand_in(_spbase, name, method)


for name in ("_matmul_dispatch", "_rmatmul_dispatch", "multiply"):
    _of_method(name)
