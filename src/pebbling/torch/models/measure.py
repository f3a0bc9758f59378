"""What a piece of code really allocates: live storages on the CPU, the allocator's own count on a GPU.

On the CPU every storage that an operation returns is watched by a weak reference: it counts from the
moment it is made to the moment it is freed, views and aliases once. What an operator allocates and
frees within itself is not seen there; on a GPU it is. Code of inductor is seen if it was compiled before.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Measured(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that measures the peak, in bytes, above what was there when it began.

    >>> x = torch.zeros(1000)
    >>> with Measured() as measured:
    ...     y = (x + 1) * 2
    >>> measured.peak, measured.live
    (8000, 4000)
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = torch.device(device)
        self.live = self.peak = 0
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._before = 0
        self._written: list[tuple[Any, Any]] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Captured models run under this mode as they do without it."""
        return True

    def __enter__(self) -> Measured:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        else:
            self._watch_inductor()
            super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.peak = torch.cuda.max_memory_allocated(self.device) - self._before
            self.live = torch.cuda.memory_allocated(self.device) - self._before
        else:
            super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
            while self._written:
                module, allocate = self._written.pop()
                module.empty_strided_cpu = allocate

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and watch what it returns."""
        inputs = {_key(leaf) for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and _key(leaf) not in inputs:
                self._watch(leaf.untyped_storage())
        self.peak = max(self.peak, self.live)
        return result

    def _watch_inductor(self) -> None:
        """Code that inductor wrote allocates past the dispatcher, through a function that each module has by name."""
        codecache = sys.modules.get("torch._inductor.codecache")
        for module in codecache.PyCodeCache.modules if codecache is not None else ():
            allocate = getattr(module, "empty_strided_cpu", None)
            if allocate is not None:
                self._written.append((module, allocate))
                module.empty_strided_cpu = self._allocating(allocate)

    def _allocating(self, allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def watched(*args: Any) -> torch.Tensor:
            made = allocate(*args)
            self._watch(made.untyped_storage())
            self.peak = max(self.peak, self.live)
            return made

        return watched

    def _watch(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._watched or storage.device.type not in (self.device.type, "cpu"):
            return

        def freed(_: Any) -> None:
            self.live -= size
            self._watched.pop(key, None)

        self._watched[key] = weakref.ref(storage, freed)
        self.live += size


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
