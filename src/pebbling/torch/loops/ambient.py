"""What a step sees besides its arguments: random generators, autocast and the choice of kernels.

The sweep notes it, and every replay runs under the same. A generator's state travels with the
snapshots: a replay starts from a snapshot with the generators as they were there and runs on in
order, so each step draws what it drew the first time. Generators of the CPU and of the CUDA devices
that tensors of the loop are on are known; those of NumPy and of Python are not, and a step that
draws from them is found out by ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

Draws = tuple[torch.Tensor, ...]
"""The states of all generators that are followed."""


class Autocast(NamedTuple):
    """The settings of autocast for one kind of device."""

    device: str
    enabled: bool
    dtype: torch.dtype
    cache: bool


class Ambient:
    """The surroundings of a loop, noted where it is made."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        kinds = ["cpu", *(["cuda"] if self.devices else [])]
        cache = torch.is_autocast_cache_enabled()
        self.autocast = [
            Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), cache) for kind in kinds
        ]
        self._last: Draws = ()

    @property
    def casts(self) -> bool:
        """Whether autocast is on."""
        return any(setting.enabled for setting in self.autocast)

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same surroundings for a replay, and the generators afterwards as they were before."""
        before = self._read()
        with ExitStack() as stack:
            for kind, enabled, dtype, cache in self.autocast:
                if enabled or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype, enabled, cache))
            stack.enter_context(without_fast_paths())
            try:
                yield
            finally:
                self.set(before)

    def draws(self) -> Draws:
        """The generators as they are; the same object for as long as nothing is drawn."""
        now = self._read()
        if len(now) != len(self._last) or not all(map(torch.equal, now, self._last)):
            self._last = now
        return self._last

    def set(self, draws: Draws) -> None:
        """Put the generators back."""
        torch.default_generator.set_state(draws[0])
        for device, state in zip(self.devices, draws[1:]):
            torch.cuda.set_rng_state(state, device)

    def _read(self) -> Draws:
        return (torch.default_generator.get_state(), *[torch.cuda.get_rng_state(device) for device in self.devices])


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Attention without the kernels that only run where nothing is differentiated: they round differently."""
    mha: Any = torch.backends.mha
    fast = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(fast)
