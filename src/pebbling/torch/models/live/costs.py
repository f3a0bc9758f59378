"""What operations take, once for each signature: seconds, and bytes that kernels take beside their results.

Arguments are made up from their shapes, between two steps, when the budget is free. On the CPU, where no allocator
counts, torch's profiler does; while somebody else is profiling it can't, and convolutions are guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch._C import _profiler

from ..costs import SameRandomNumbers, on_cuda
from .away import SMALL
from .operators import operator
from .signature import Signature, made_up

_TRUSTING = ("rnn", "lstm", "gru", "embedding_bag", "segment_reduce", "nonzero", "masked_select", "unique", "repeat_i")
_LONG = 0.5
"""Seconds of the program's own run above which an operation is not run again to see what it takes."""


class Price(NamedTuple):
    """Seconds and bytes of one run; ``timed`` if the seconds were measured apart from the program."""

    time: float
    workspace: int = 0
    timed: bool = False


_legacy: Any = torch.autograd
_known: dict[Signature, Price] = {}


def prices(signatures: Iterable[tuple[Signature, float]], most: int | None) -> dict[Signature, Price]:
    """What each signature takes, those that can be measured with ``most`` bytes: what a step took or may take."""
    wanted = dict(signatures)
    new = [each for each, seconds in wanted.items() if each not in _known and _measurable(each, seconds, most)]
    with torch.utils._python_dispatch._disable_current_modes(), _quiet():
        for each in new:
            if each.device.startswith("cuda"):
                _known[each] = _timed(each)
        _known.update(_workspaces([each for each in new if not each.device.startswith("cuda")]))
    return {each: _known.get(each) or Price(0.0, _guessed(each)) for each in wanted}


def _guessed(signature: Signature) -> int:
    """Convolutions arrange what they read and make anew; what else is not measured is thought to take nothing."""
    return 2 * signature.bytes if "convolution" in operator(signature.function).name else 0


@contextmanager
def _quiet() -> Iterator[None]:
    with torch.no_grad(), torch._C._DisableAutocast(), SameRandomNumbers():
        yield


def _measurable(signature: Signature, seconds: float, most: int | None) -> bool:
    facts = operator(signature.function)
    harmless = facts.name.startswith("aten.") and not any(word in facts.name for word in _TRUSTING)
    fits = most is None or 2 * signature.bytes <= most
    return harmless and fits and seconds <= _LONG and not facts.views and signature.bytes > SMALL


def _timed(signature: Signature) -> Price:
    try:
        cost = on_cuda(_call(signature))
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return Price(0.0)
    return Price(cost.time, cost.workspace, timed=True)


def _call(signature: Signature) -> Any:
    args = [made_up(each) for each in signature.args]
    return partial(signature.function, *args, **{name: made_up(each) for name, each in signature.kwargs})


def _workspaces(signatures: list[Signature]) -> dict[Signature, Price]:
    """The most bytes beyond its results that each takes on the CPU, by the events of the profiler."""
    found: dict[Signature, Price] = {}
    if torch._C._autograd._profiler_enabled():
        return found
    for each in signatures:
        try:
            run = _call(each)
            events = _allocations(run)
            begun = perf_counter()
            run()
            seconds = perf_counter() - begun
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            continue
        level = peak = 0
        for bytes in events:
            level += bytes
            peak = max(peak, level)
        found[each] = Price(seconds, max(0, peak - max(level, 0)), timed=True)
    return found


def _allocations(run: Callable[[], Any]) -> list[int]:
    """Bytes that were taken and, below 0, given back while something ran, in order."""
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.CPU, False, True, False, False, False, _profiler._ExperimentalConfig()
    )
    _legacy._enable_profiler_legacy(config)
    result: Any = None
    try:
        result = run()
    finally:
        threads = _legacy._disable_profiler_legacy()
    del result
    return [each.cpu_memory_usage() for events in threads for each in events if _kind(each) == "memory_alloc"]


def _kind(event: Any) -> str:
    return event.kind()
