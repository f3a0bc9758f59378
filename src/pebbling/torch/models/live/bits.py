"""Tensors by their bits: not-a-number is equal to itself, and minus zero is not zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COLUMNS = 1024


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same bits in the same layout."""
    if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
        return False
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    kind = _AS_INTEGER[a.element_size()]
    return torch.equal(a.view(kind), b.view(kind))


def flat(storage: Any) -> Tensor:
    """All of a storage but its last few bytes, as integers."""
    return torch.empty(0, dtype=torch.int64, device=storage.device).set_(storage, 0, (storage.nbytes() // 8,))  # type: ignore[call-overload]


def digest(storage: Any) -> Tensor:
    """Two sums over a storage, one of which knows the places: no proof that bits are equal, but no chance to miss much.

    The sums stay on the device, so that nothing waits for them.
    """
    numbers = flat(storage)
    whole = numbers.numel() // _COLUMNS * _COLUMNS
    weights = torch.arange(1, _COLUMNS + 1, device=numbers.device)
    columns = numbers[:whole].view(-1, _COLUMNS).sum(0)
    rest = numbers[whole:]
    placed = (columns * weights).sum() + (rest * weights[: rest.numel()] * 31).sum()
    rows = numbers[:whole].view(-1, _COLUMNS).sum(1)
    turned = (rows * torch.arange(1, rows.numel() + 1, device=numbers.device)).sum()
    return torch.stack([placed, turned])
