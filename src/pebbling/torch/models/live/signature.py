"""What decides the cost of an operation: the operator, shapes, strides, types, and plain arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Dimensions(NamedTuple):
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    reach: int
    """Numbers of the storage that it looks into."""


class Signature(NamedTuple):
    """An operation without its numbers; equal ones cost the same."""

    function: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    @property
    def bytes(self) -> int:
        """Bytes that its arguments take."""
        return sum(_bytes(each) for each in (*self.args, *(value for _, value in self.kwargs)))

    @property
    def device(self) -> str:
        """Where it runs."""
        places = [each for given in (*self.args, *(value for _, value in self.kwargs)) for each in _devices(given)]
        return next((each for each in places if each.startswith("cuda")), places[0] if places else "cpu")


def signature(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    """The signature of a call."""
    return Signature(function, tuple(map(_facts, args)), tuple((name, _facts(each)) for name, each in kwargs.items()))


def _facts(given: Any) -> Any:
    if isinstance(given, Tensor):
        steps = given.stride()
        last = sum((n - 1) * step for n, step in zip(given.shape, steps, strict=True))
        reach = int(given.storage_offset() + last + 1) if given.numel() else 0
        return Dimensions(tuple(given.shape), tuple(steps), given.dtype, str(given.device), reach)
    if isinstance(given, list | tuple):
        return tuple(map(_facts, given))
    return given if isinstance(given, int | float | bool | str | torch.dtype | None) else repr(given)


def made_up(given: Any) -> Any:
    """An argument with those facts, and numbers of our own."""
    if isinstance(given, Dimensions):
        flat = torch.zeros(max(given.reach, 1), dtype=given.dtype, device=given.device)
        if given.dtype.is_floating_point or given.dtype.is_complex:
            flat.normal_()
        return flat.as_strided(given.shape, given.stride)
    if isinstance(given, tuple):
        return [made_up(each) for each in given]
    return given


def _bytes(given: Any) -> int:
    if isinstance(given, Dimensions):
        return given.reach * given.dtype.itemsize
    return sum(map(_bytes, given)) if isinstance(given, tuple) else 0


def _devices(given: Any) -> list[str]:
    if isinstance(given, Dimensions):
        return [given.device]
    return [place for each in given for place in _devices(each)] if isinstance(given, tuple) else []
