"""Tensors by their bits: not-a-number is equal to itself, and minus zero is not zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COLUMNS = 1024
_AT_ONCE = 2**22
"""Numbers that are compared at once where that takes memory."""


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same bits in the same layout."""
    if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
        return False
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    kind = _AS_INTEGER[a.element_size()]
    a, b = a.view(kind), b.view(kind)
    if a.device.type == "cpu":
        return torch.equal(a, b)
    if a.numel() > _AT_ONCE and _dense(a):
        a, b = (each.as_strided((a.numel(),), (1,)) for each in (a, b))
    # Other devices note every comparison in memory of its own before they count them.
    parts = zip(torch.split(a, _AT_ONCE), torch.split(b, _AT_ONCE), strict=True) if a.dim() else ((a, b),)
    return not bool(torch.stack([(one != other).any() for one, other in parts] or [a.new_zeros(())]).any())


def _dense(tensor: Tensor) -> bool:
    """Whether the numbers lie in one piece, in any order."""
    steps = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    reach = 1
    for step, size in steps:
        if size != 1 and step != reach:
            return False
        reach *= size
    return True


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
