"""What autograd saves, with the check that torch makes itself where no hooks are: was it written in place since?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .away import Package
from .values import Window

_nothing: dict[Any, Tensor] = {}


class Probe:
    """The version counter of a tensor, without its storage."""

    __slots__ = ("alias", "shape", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.alias: Tensor = tensor.detach()
        self.version, self.shape = self.alias._version, tensor.shape
        # The alias keeps the counter that it shares with the tensor, and nothing else.
        kind = tensor.dtype, tensor.device
        nothing = _nothing.get(kind)
        if nothing is None:
            nothing = _nothing[kind] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        self.alias.data = nothing

    def check(self) -> None:
        """Raise what torch raises where a saved tensor was written since."""
        if self.alias._version != self.version:
            raise RuntimeError(written(self.shape, self.alias._version, self.version))


def written(shape: Any, now: int, then: int) -> str:
    """The message of torch, by which programs know the error."""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
        f"shape {list(shape)} is at version {now}; expected version {then} instead."
    )


def kept(tensor: Tensor) -> tuple[Tensor, int]:
    """A saved tensor that stays; results are saved detached, or the graph would hold itself."""
    if not tensor.is_leaf:
        tensor = tensor.detach()
    return tensor, tensor._version


def taken(saved: tuple[Tensor, int]) -> Tensor:
    """The tensor that stayed."""
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError(written(tensor.shape, tensor._version, version))
    return tensor


class Parked:
    """A saved tensor of a step without a plan, which may have been moved away."""

    __slots__ = ("__weakref__", "package", "probe", "window")

    def __init__(self, package: Package, tensor: Tensor) -> None:
        self.package, self.window, self.probe = package, Window(None, tensor), Probe(tensor)

    def unpack(self) -> Tensor:
        """The tensor, brought back."""
        self.probe.check()
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
            return self.window.over(self.package.get())
