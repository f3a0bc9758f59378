"""Values that a plan moves to memory of the host, and back: one slab for a step, with a place in it for each value.

The plan chooses between keeping, running again and moving by the time that each takes, with the bandwidth that was
measured. A copy there begins as soon as the value is made, and is done before the plan gives the value's bytes away;
a copy back begins as early as the budget has room. On a GPU each way has a stream of its own beside the computation,
and the host's memory is pinned; on the CPU copies are done at once, so that the same plans run there.

No place is used twice within a step, so a value can be asked for again in whatever order the backward pass takes. A
slab goes to the next step when all of this one is gone: what came back has been waited for by then.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PROBE = 2**25
"""Bytes that are copied to see how fast that is."""
PAGE = 512
"""Places begin at multiples of so many bytes."""
_rates: dict[str, float] = {}


class Slab:
    """Memory of the host for the values of one step."""

    def __init__(self, places: dict[int, tuple[int, int]], device: torch.device) -> None:
        self.places, self.device = places, device
        self._memory = _host_memory(max(start + bytes for start, bytes in places.values()), device)
        self._there = self._back = None
        if device.type == "cuda":
            self._there, self._back = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]

    def put(self, number: int, storage: Any) -> Any:
        """Begin to copy a value there; what to wait for before its own bytes may go."""
        place, here = self._place(number), _bytes(storage)
        if self._there is None:
            place.copy_(here)
            return None
        return _copied(self._there, place, here)

    def get(self, number: int) -> tuple[Any, Any]:
        """Begin to bring a value back: its storage, and what to wait for before it is read."""
        place = self._place(number)
        here = torch.empty(place.numel(), dtype=torch.uint8, device=self.device)
        if self._back is None:
            here.copy_(place)
            return here.untyped_storage(), None
        return here.untyped_storage(), Arrival(_copied(self._back, here, place))

    def _place(self, number: int) -> Tensor:
        start, bytes = self.places[number]
        return self._memory[start : start + bytes]


class Arrival:
    """A copy that is under way: the computation waits for it before it reads it, and before its memory is another's."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def wait(self) -> None:
        """Let what is launched from now on run after it."""
        event, self._event = self._event, None
        if event is not None:
            event.wait()

    def __del__(self) -> None:
        self.wait()


def _copied(stream: Any, to: Tensor, given: Tensor) -> Any:
    """Copy on a stream, after all that was launched before on the computation's own."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        to.copy_(given, non_blocking=True)
    return stream.record_event()


def places(sizes: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Where each value goes in the slab: its first byte, and how many."""
    found, start = {}, 0
    for number, bytes in sizes.items():
        found[number] = (start, bytes)
        start += -(-bytes // PAGE) * PAGE
    return found


def rate(device: torch.device, most: int) -> float:
    """Bytes per second to the host and back, measured once, with up to so many bytes of the device."""
    known = _rates.get(device.type)
    if known is None:
        known = _rates[device.type] = _measured(device, max(1, min(_PROBE, most)))
    return known


def _measured(device: torch.device, bytes: int) -> float:
    host = _host_memory(bytes, device)
    on_gpu = device.type == "cuda"
    here = torch.empty(bytes, dtype=torch.uint8, device=device) if on_gpu else _host_memory(bytes, device)
    host.zero_()
    here.zero_()
    best = float("inf")
    for _ in range(3):
        _wait(device)
        begun = perf_counter()
        host.copy_(here, non_blocking=True)
        here.copy_(host, non_blocking=True)
        _wait(device)
        best = min(best, perf_counter() - begun)
    return 2 * bytes / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _host_memory(bytes: int, device: torch.device) -> Tensor:
    if device.type == "cuda":
        return torch.empty(bytes, dtype=torch.uint8, pin_memory=True)
    # Not of torch's own, which the budget counts on the CPU.
    return torch.from_numpy(np.empty(bytes, np.uint8))


def _bytes(storage: Any) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
