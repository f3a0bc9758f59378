"""One step of a compiled model that nobody notices: its peak is measured, and everything else is undone.

The step runs on the caller's own tensors: detached, so that gradients end up elsewhere and no hook is
called, and cloned where the model changes them in place. Random generators are left as they were. A
first run comes before the one that is measured, since kernels that are tuned take more when they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .costs import SameRandomNumbers
from .measure import Measured


def peak_of(
    run: Callable[..., Any], arguments: Sequence[Any], changed: Collection[int], device: str | None
) -> int | None:
    """Bytes that forward and backward take at most, above what is there; None if the device has not that many."""
    try:
        with torch.utils._python_dispatch._disable_current_modes(), SameRandomNumbers():
            _step(run, _aliases(arguments, changed))
            given = _aliases(arguments, changed)
            with Measured(device or "cpu") as measured:
                _step(run, given)
            return measured.peak
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None


def _step(run: Callable[..., Any], given: list[Any]) -> None:
    results = [leaf for leaf in tree_leaves(run(*given)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if results:
        # As many gradients as a loss behind the model would hand over.
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])


def _aliases(arguments: Sequence[Any], changed: Collection[int]) -> list[Any]:
    return [_alias(argument, place in changed) for place, argument in enumerate(arguments)]


def _alias(argument: Any, changed: bool) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    alias = argument.detach().clone() if changed else argument.detach()
    return alias.requires_grad_(argument.requires_grad)
