"""Two things that a tape needs of autograd: where a graph begins, and hooks that keep quiet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Source(torch.autograd.Function):
    """A value from which a graph begins, without being held by it as a leaf would be."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[None, None]:
        return None, None


class WithoutHooks:
    """Hooks of these tensors are called once, when their whole gradient arrives, and not for every block."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._hooks = [tensor._backward_hooks for tensor in tensors if tensor._backward_hooks]
        self._held: list[dict[Any, Any]] = []

    def __enter__(self) -> None:
        for hooks in self._hooks:
            self._held.append(dict(hooks))
            hooks.clear()

    def __exit__(self, *_: object) -> None:
        for hooks, held in zip(self._hooks, self._held):
            hooks.update(held)
