"""The functions of NumPy that the shared programs call, on tensors."""

from __future__ import annotations

from types import SimpleNamespace

import torch

FLOAT = torch.float64


class Generator:
    """A generator of random numbers inside an object of the program's own."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, size=()):
        return torch.randn(size, generator=self.generator, dtype=FLOAT)


def _sum(values):
    return torch.sum(torch.as_tensor(values, dtype=None if isinstance(values, torch.Tensor) else FLOAT))


NUMPY = SimpleNamespace(
    abs=torch.abs,
    arange=torch.arange,
    array=torch.tensor,
    copy=torch.clone,
    cos=torch.cos,
    full=lambda size, value: torch.full((size,), value, dtype=FLOAT),
    max=torch.max,
    multiply=torch.mul,
    ones=lambda size: torch.ones(size, dtype=FLOAT),
    random=SimpleNamespace(default_rng=Generator),
    sin=torch.sin,
    sum=_sum,
    tanh=torch.tanh,
    zeros=lambda size, dtype=float: torch.zeros(size, dtype=torch.int64 if dtype is int else FLOAT),
)
"""As it is: what is written into after an operation has saved it can't be differentiated."""

CAREFUL = SimpleNamespace(
    **vars(NUMPY)
    | {
        "multiply": lambda one, two: torch.mul(one.clone(), two.clone()),
        "sin": lambda one: torch.sin(one.clone()),
        "tanh": lambda one: torch.tanh(one).clone(),
    }
)
"""With operations that save nothing into which somebody could write."""
