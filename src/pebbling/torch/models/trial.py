"""Steps of compiled models that nobody notices: peak or time is measured, and everything else is undone.

A step runs on the caller's own tensors: detached, so that gradients end up elsewhere and no hook is
called, and cloned where the model changes them in place. Random generators are left as they were. A
first run comes before the one whose peak is measured, since kernels that are tuned take more when they are.

Times are for choosing among models that compute the same. They take turns, so that whatever else the
machine does slows all of them alike, and the best turn of each counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from time import perf_counter, process_time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .costs import SameRandomNumbers
from .measure import Measured

# Turns that each gets at least, seconds after which that is enough, and turns at most.
_TURNS, _LONG_ENOUGH, _MOST_TURNS = 5, 0.5, 50


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


def times_of(
    runs: Sequence[Callable[..., Any]], arguments: Sequence[Any], changed: Collection[int], device: str | None
) -> list[float]:
    """Seconds of one step of each, the best of several: on the CPU those of the processor, which others can't delay."""
    best = [math.inf] * len(runs)
    spent, turns = 0.0, 0
    with torch.utils._python_dispatch._disable_current_modes(), SameRandomNumbers():
        while turns < _TURNS or (spent < _LONG_ENOUGH * len(runs) and turns < _MOST_TURNS):
            for place, run in enumerate(runs):
                seconds = _seconds(run, _aliases(arguments, changed), device)
                best[place], spent = min(best[place], seconds), spent + seconds
            turns += 1
    return best


def _seconds(run: Callable[..., Any], given: list[Any], device: str | None) -> float:
    clock = process_time if device is None else perf_counter
    if device is not None:
        torch.cuda.synchronize(device)
    begun = clock()
    _step(run, given)
    if device is not None:
        torch.cuda.synchronize(device)
    return clock() - begun


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
