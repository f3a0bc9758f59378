"""Which calls are alike: those of the same shapes and switches, so that a plan for one may do for the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def kind(model: Any, args: Any, kwargs: Any) -> Any:
    """What is the same for calls that are probably alike; whether they are is seen while they run."""
    training = model.training if isinstance(model, nn.Module) else None
    autocast = tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    named = tuple((name, _facts(each, 3)) for name, each in kwargs.items())
    return training, autocast, tuple(_facts(each, 3) for each in args), named


def _facts(given: Any, depth: int) -> Any:
    if isinstance(given, Tensor):
        return given.shape, given.dtype, given.device, given.requires_grad
    if depth and isinstance(given, list | tuple):
        return type(given), tuple(_facts(each, depth - 1) for each in given)
    if depth and isinstance(given, dict):
        return type(given), tuple((str(name), _facts(each, depth - 1)) for name, each in given.items())
    if isinstance(given, bool | str | None):
        return given
    return type(given)
