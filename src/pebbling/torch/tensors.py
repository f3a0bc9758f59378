"""What several rooms ask of a value: is it a tensor, can a derivative go through it, how large is it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def differentiable(value: Any) -> bool:
    """Whether a derivative could be taken through a value: a tensor of real or complex floating-point numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def requires_grad(value: Any) -> bool:
    """Whether a value is a tensor that autograd follows."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def tensors_among(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among the leaves of a tree."""
    return [value for value in values if isinstance(value, torch.Tensor)]


def nbytes(values: Iterable[Any]) -> int:
    """Bytes of the tensors among the leaves of a tree, as if none shared memory with another."""
    return sum([value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor)])
