"""A user's program as type checkers see it: `make lint` runs mypy over it, in strict mode."""

from __future__ import annotations

import numpy as np

import pebbling as pb


@pb.checkpoint(slots=3)
def energy(x: np.ndarray) -> float:
    for _ in range(10):
        x = np.sin(x)
    return float(np.sum(x))


@pb.checkpoint
def total(x: np.ndarray) -> float:
    return float(np.sum(x))


def grow(i: int, state: np.ndarray) -> np.ndarray:
    return state * 1.1


def show() -> None:
    """Every front end for NumPy, called as the docs call it."""
    x = np.ones(3)
    print(pb.grad(energy)(x), pb.value_and_grad(total)(x), pb.hvp(total)(x, x))
    print(pb.explain(energy, x), pb.loop(grow, x, 10, slots=3))
    result = pb.adjoint(lambda state, i: state, lambda state, w, i: w, x, 10, x, memory="2MB")
    print(result.adjoint, result.report)
