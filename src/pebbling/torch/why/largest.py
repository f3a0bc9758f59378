"""The largest batch, or sequence, whose step fits on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import BudgetError
from ...units import format_bytes, parse_bytes
from .front import why


@dataclass(frozen=True)
class Largest:
    """The largest size that fits: ``size``, its measured ``peak``, and what was measured on the way."""

    size: int
    peak: int
    memory: int
    tried: tuple[tuple[int, int], ...]
    """Every size that was measured, with its peak, in order."""

    def __str__(self) -> str:
        steps = ", ".join(f"{size}: {format_bytes(peak)}" for size, peak in self.tried)
        return f"size {self.size} peaks at {format_bytes(self.peak)} of {format_bytes(self.memory)} (measured {steps})"


def largest(
    model: Callable[..., Any],
    make_batch: Callable[[int], Any],
    memory: float | str,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    most: int = 1 << 20,
) -> Largest:
    """The largest ``n`` up to ``most`` for which a step on ``make_batch(n)`` peaks within ``memory``.

    ``make_batch`` returns a tuple of arguments, a dictionary of them, or one tensor. ``memory`` counts everything
    that the step needs, the parameters included. What the sizes before took says which size is tried next, so that
    only the last steps come close to the limit. The size that is returned was measured, and so was the next one, unless
    that is above ``most``.

    >>> model = torch.nn.Linear(8, 8)
    >>> found = largest(model, lambda n: torch.ones(n, 8), memory="64KiB")
    >>> found.peak <= 64 * 1024, len(found.tried) < 10
    (True, True)
    """
    budget = parse_bytes(memory)
    tried: dict[int, int] = {}

    def measured(size: int) -> int:
        args, keywords = arguments(make_batch(size))
        if size not in tried:
            try:
                tried[size] = why(model, *args, loss=loss, optimizer=optimizer, **keywords).peak
            except torch.OutOfMemoryError:
                tried[size] = budget + 1
        return tried[size]

    low, high = 1, most + 1  # low fits, high does not
    if measured(1) > budget:
        raise BudgetError(
            f"size 1 already peaks at {format_bytes(tried[1])}, more than {format_bytes(budget)}", minimum=tried[1]
        )
    while high - low > 1:
        size = _next(tried, low, high, budget)
        if measured(size) <= budget:
            low = size
        else:
            high = size
    return Largest(low, tried[low], budget, tuple(tried.items()))


def _next(tried: dict[int, int], low: int, high: int, budget: int) -> int:
    """Where the line through the last two sizes that fit meets the budget, but not above eight times the last."""
    fitting = sorted(size for size in tried if size <= low)
    if len(fitting) < 2:
        guess = 2 * low
    else:
        a, b = fitting[-2:]
        slope = max((tried[b] - tried[a]) / (b - a), 1e-9)
        guess = min(int(b + (budget - tried[b]) / slope), 8 * b)
    known = tried.get(high)
    if known is not None and guess <= low and known > tried[low]:
        guess = low + 1
    return min(max(guess, low + 1), high - 1)


def arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a batch: a tuple or list of them, a dictionary, or one."""
    if isinstance(batch, tuple | list):
        return tuple(batch), {}
    if isinstance(batch, dict):
        return (), dict(batch)
    return (batch,), {}
