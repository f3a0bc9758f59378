"""Room for one operation, made before it runs by moving saved values away."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .away import SMALL, Away
from .ledger import Ledger
from .operators import operator

_UNKNOWN = 1
"""Bytes that an operation on a GPU is thought to take inside for each that it is given, until it has run once."""
_LIKELY = 4
"""Results of up to so many times the arguments, or the largest result so far, are not looked at more closely."""

_SHARE, _OWN = 16, 2**18
"""Recording takes so many bytes for itself, digests and comparisons, and no more than such a part of the budget."""
_RESERVE = 0.04
"""On a GPU such a share stays free while a step is recorded: on an H200 the first step was up to 2.3 % over its budget
even with what kernels take inside counted, for a reason that was not found."""


class StepRoom:
    """The budget of a step that has no plan."""

    def __init__(self, ledger: Ledger, away: Away, memory: int | None) -> None:
        self.ledger, self.away, self.memory = ledger, away, memory
        # Some of the budget is for digests and comparisons.
        self._limit = 0 if memory is None else memory - kept_back(memory)
        self._most = 0
        self._device = Device() if memory is not None and on_gpu() else None
        self._inside: dict[Any, int] = {}
        """What operations took beside their results, for each byte of theirs that came and went."""
        self.beside = 0
        """Bytes of copies that the proof of the running operation needs."""

    def make(self, bytes: int, may: bool = False) -> bool:
        """Move values away until so many bytes are free; whether they are, or else whether that makes no difference.

        With ``may``, they are not taken where there is no room; but a step that is over the budget already takes
        them all the same, so that what it took says which budget would do.
        """
        if self.memory is None:
            return True
        over = self._live() + bytes - self._limit
        if over > 0:
            over -= self.away.free(over)
        fits = over <= 0 or self.hopeless
        if fits or not may:
            self.ledger.during(self.beside + bytes)
        return fits

    def _live(self) -> int:
        """What is taken: on a GPU whatever its allocator counts, such as states of generators and sums of ours."""
        live = self.ledger.live + self.beside
        return live if self._device is None else max(live, self._device.taken())

    @property
    def hopeless(self) -> bool:
        """Whether the step has taken more than the budget, whatever was moved away."""
        return self.memory is not None and self.ledger.peak > self._limit

    def run(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """The result of an operation and the seconds that it took, with room made for it."""
        if self.memory is not None and not operator(function).views:
            self._prepare(function, args, kwargs)
        if self._device is not None and not operator(function).views:
            return self._watched(self._device, function, args, kwargs)
        begun = perf_counter()
        result = function(*args, **kwargs)
        return result, perf_counter() - begun

    def inside(self, function: Any, args: Any, made: int) -> int:
        """Bytes that an operation takes inside when it runs again."""
        if self._device is None:
            return guessed(function, args, made)
        return int(self._inside.get(function, 0) / 1000 * sum(_bytes(each) for each in tree_leaves(args)))

    def _watched(self, device: Device, function: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """Run an operation on a GPU and see what it takes inside; the first of its kind is thought to take much."""
        given = sum(_bytes(each) for each in tree_leaves((args, kwargs)))
        inside = self._inside.get(function)
        wanted = _UNKNOWN * given if inside is None else int(inside / 1000 * given)
        if given > SMALL and wanted and not simple(function):
            # Room alone: whether it is taken is not known.
            over = self._live() + wanted + max(self._most, given) - self._limit
            if over > 0:
                self.away.free(over)
        allocated, held = device.allocated(), device.taken()
        begun = perf_counter()
        result = function(*args, **kwargs)
        seconds = perf_counter() - begun
        if given > SMALL:
            taken = device.allocated() - allocated - max(0, device.taken() - held)
            self._inside[function] = max(self._inside.get(function, 0), -(-1000 * max(0, taken) // given))
            self.ledger.during(max(0, taken))
        return result, seconds

    def _prepare(self, function: Any, args: Any, kwargs: Any) -> None:
        given = sum(_bytes(each) for each in tree_leaves((args, kwargs)))
        assert self.memory is not None
        if self._live() + _LIKELY * max(given, self._most) <= self._limit:
            return
        needed = expected(function, args, kwargs)
        self._most = max(self._most, needed)
        needed += guessed(function, args, needed)
        self.make(needed)


class Device:
    """The allocator of a GPU, from now on."""

    def __init__(self) -> None:
        self._place = torch.cuda.current_device()
        self._before = torch.cuda.memory_allocated(self._place)

    def taken(self) -> int:
        """Bytes above those before."""
        return torch.cuda.memory_allocated(self._place) - self._before

    def allocated(self) -> int:
        """All bytes that were ever given out."""
        return int(torch.cuda.memory_stats(self._place)["allocated_bytes.all.allocated"])


def kept_back(memory: int) -> int:
    """Bytes of the budget that stay free while a step is recorded."""
    return math.ceil(_RESERVE * memory) if on_gpu() else min(memory // _SHARE, _OWN)


def recordable(peak: int) -> float:
    """The budget in which a step can be recorded that took so much with everything moved away that could be."""
    return peak / (1 - _RESERVE) if on_gpu() else min(peak + _OWN, peak * _SHARE / (_SHARE - 1))


def on_gpu() -> bool:
    """Whether a GPU is in use."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def simple(function: Any) -> bool:
    """Whether an operator reads and writes numbers one by one, and takes nothing inside."""
    return torch.Tag.pointwise in getattr(function, "tags", ())


def expected(function: Any, args: Any, kwargs: Any) -> int:
    """Bytes that an operation will make: as a run on tensors without numbers says, or as much as it was given."""
    try:
        with torch.no_grad():
            given, named = tree_map(_meta, (args, kwargs))
            known = {each.untyped_storage()._cdata for each in tree_leaves((given, named)) if isinstance(each, Tensor)}
            made = {}
            for each in tree_leaves(function(*given, **named)):
                if isinstance(each, Tensor) and each.untyped_storage()._cdata not in known:
                    made[each.untyped_storage()._cdata] = each.untyped_storage().nbytes()
            return sum(made.values())
    except Exception:  # Sizes that depend on numbers, operators without such a kernel.
        return max((_bytes(each) for each in tree_leaves((args, kwargs))), default=0)


def guessed(function: Any, args: Any, made: int) -> int:
    """Bytes that an operation is thought to take while it runs.

    Convolutions arrange what they read and make anew; coins are tossed as integers on the CPU, whatever they fill.
    """
    name = operator(function).name
    if "bernoulli" in name:
        return sum(4 * each.numel() for each in args[:1] if isinstance(each, Tensor) and each.device.type == "cpu")
    if "convolution" not in name:
        return 0
    return made + sum(_bytes(each) for each in tree_leaves(args))


def _bytes(given: Any) -> int:
    return given.numel() * given.element_size() if isinstance(given, Tensor) else 0


def _meta(given: Any) -> Any:
    if not isinstance(given, Tensor):
        return torch.device("meta") if isinstance(given, torch.device) else given
    return torch.empty_strided(given.size(), given.stride(), dtype=given.dtype, device="meta")
