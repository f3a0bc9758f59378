"""How much memory tensors take: storages that are alive, counted as operators make them and as they die.

Every operator that runs in the block is seen, those of the way back included. On the CPU this is exact for
tensors and blind to what an operator allocates for itself; on a GPU, what the allocator hands out while an
operator runs is counted as well, in full, so that the peak is never too small.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_GRAIN = 512  # bytes that the allocator of a GPU rounds up to


class Tracked(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of tensors made inside: ``held`` now, and ``peak``, the most at any time.

    >>> with Tracked() as memory:
    ...     x = torch.zeros(1000)
    ...     y = (x + 1) * 2
    >>> memory.held, memory.peak
    (8000, 12000)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self._alive: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor, made_here=False)
        before = _handed_out()
        result = func(*args, **(kwargs or {}))
        level = self.held
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor)
        inside = _handed_out() - before
        self.peak = max(self.peak, self.held, level + inside)
        return result

    def restart(self) -> None:
        """Forget the peak up to now."""
        self.peak = self.held

    def _follow(self, tensor: torch.Tensor, made_here: bool = True) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse tensors and other kinds without one
            return
        key = storage._cdata
        if key in self._alive:
            return
        # What an operator is given and nobody here has made was there before, and so may be views of it.
        size = _size(storage.nbytes(), tensor.device) if made_here else 0
        self._alive[key] = weakref.ref(storage, lambda _: self._forget(key, size))
        self.held += size

    def _forget(self, key: int, size: int) -> None:
        del self._alive[key]
        self.held -= size


def _size(nbytes: int, device: torch.device) -> int:
    return -(-nbytes // _GRAIN) * _GRAIN if device.type == "cuda" else nbytes


def _handed_out() -> int:
    """All bytes that the allocators of the GPUs have ever handed out."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    total: int = torch.cuda.memory_stats().get("allocated_bytes.all.allocated", 0)
    return total
