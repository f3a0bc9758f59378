"""What one training step makes and when it dies: operations, storages, module calls, and the allocator's own count.

Storages are followed by weak references, each operation's module by hooks, the user's line by the innermost frame
that is neither torch's nor ours. An operation of the backward pass belongs to the forward operation whose autograd node
has the same sequence number: that is how a gradient is blamed on a line of the model.

Bytes are the allocator's: on a GPU its counters around each operation; on the CPU the allocations that torch's profiler
records, sorted into operations by markers. On the meta device there is no allocator, and storages are counted instead.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...peaks import Life, ModuleCall, Moment, Story
from ...peaks.story import Kind, Phase

_OURS = (str(torch.__path__[0]), __file__.rpartition("torch")[0])
_MARK = "pebbling why "
_CPU = torch._C._autograd.DeviceType.CPU


class _Storage:
    """A storage that is followed: the start of a ``Life``."""

    __slots__ = ("bytes", "end", "keepers", "kind", "place", "reference", "start")

    def __init__(self, size: int, start: int, kind: Kind, place: tuple[str, str, str]) -> None:
        self.bytes, self.start, self.kind, self.place = size, start, kind, place
        self.end: int | None = None
        self.keepers: list[int] = []
        """Sequence numbers of the autograd nodes that save it."""
        self.reference: Any = None


class _Called:
    """A call of a module: the start of a ``ModuleCall``."""

    __slots__ = ("module", "name", "reads", "start", "stop")

    def __init__(self, module: str, name: str, start: int, reads: list[_Storage]) -> None:
        self.module, self.name, self.start, self.reads = module, name, start, reads
        self.stop = start


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context for one step of a model on one device."""

    def __init__(self, model: nn.Module | None, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.phase: Phase = "forward"
        self._names = {} if model is None else {each: name for name, each in model.named_modules()}
        self._moments: list[tuple[str, tuple[str, str, str], Phase]] = []
        self._counts: list[tuple[int, int]] = []
        """On a GPU: bytes in use before each operation, and the most since."""
        self._followed: dict[int, _Storage] = {}
        self._storages: list[_Storage] = []
        self._stack: list[_Called] = []
        self._calls: list[_Called] = []
        self._by_node: dict[int, tuple[str, str, str]] = {}
        self._nodes: list[int] = []
        self._profiler: Any = None
        self._open = ExitStack()
        self.start = self.reserved = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled parts run under this mode as they do without it."""
        return True

    def stand(self, tensors: Iterable[Any], kind: Kind) -> None:
        """Follow what is there before the step."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self.device.type:
                self._follow(tensor, kind, ("", "", ""))

    @property
    def standing(self) -> int:
        """Bytes of what was there before the step."""
        return sum(storage.bytes for storage in self._storages if not storage.place[0] and storage.start == 0)

    def name(self, tensors: Iterable[Any], kind: Kind) -> None:
        """Say what some storages have turned out to be."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                found = self._followed.get(_key(tensor))
                if found is not None and found.place[0]:
                    found.kind = kind

    def __enter__(self) -> Observer:
        self._open.enter_context(self._module_hooks())
        self._open.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            self.start = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.device.type == "cpu":
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its starts and stops are nobody's business
            self._profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
            )
            self._open.enter_context(self._profiler)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self._counts.append((torch.cuda.memory_allocated(self.device), 0))
            self.reserved = max(0, torch.cuda.memory_reserved(self.device))
        self._open.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and note what it makes and who asked for it."""
        number = len(self._moments)
        place, phase = self._place(func)
        self._moments.append((func._schema.name, place, phase))
        known = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        if self.device.type == "cuda":
            before = torch.cuda.memory_allocated(self.device)
            if self._counts:
                last, most = self._counts[-1]
                self._counts[-1] = last, max(most, torch.cuda.max_memory_allocated(self.device))
            torch.cuda.reset_peak_memory_stats(self.device)
            self._counts.append((before, before))
            result = func(*args, **(kwargs or {}))
            self._counts[-1] = before, torch.cuda.max_memory_allocated(self.device)
        elif self._profiler is not None:
            with torch.profiler.record_function(f"{_MARK}{number}"):
                result = func(*args, **(kwargs or {}))
        else:
            result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and _key(leaf) not in known and leaf.device.type == self.device.type:
                self._follow(leaf, "temporary", (func._schema.name, place[1], place[2]))
        return result

    def story(self) -> Story:
        """All that was seen, once the step is over."""
        counts = self._allocated()
        moments = tuple(
            Moment(_short(op), place[1], place[2], phase, level, top)
            for (op, place, phase), (level, top) in zip(self._moments, counts)
        )
        ran: dict[int, int] = {}
        for at, node in enumerate(self._nodes):
            ran.setdefault(node, at)
        index = {id(storage): number for number, storage in enumerate(self._storages)}
        lives = tuple(
            Life(
                storage.bytes,
                storage.start,
                storage.end,
                storage.kind,
                _short(storage.place[0]),
                storage.place[1],
                storage.place[2],
                _short(self._by_node.get(storage.keepers[0], ("", "", ""))[0]) if storage.keepers else "",
                max((ran[each] for each in storage.keepers if each in ran), default=None),
            )
            for storage in self._storages
        )
        blocks = tuple(self._block(each, index) for each in self._calls if each.stop > each.start)
        return Story(moments, lives, blocks)

    # Who asks for an operation.

    def _place(self, func: Any) -> tuple[tuple[str, str, str], Phase]:
        node = torch._C._current_autograd_node()
        if node is not None:
            number = int(node._sequence_nr())
            self._nodes.append(number)
            name, module, line = self._by_node.get(number, ("", "", ""))
            return (name, module, line), "backward"
        place = (func._schema.name, self._stack[-1].module if self._stack else "", _line())
        if self.phase == "forward":
            number = _latest_node()
            self._by_node.setdefault(number, place)
            self._nodes.append(number)
        else:
            self._nodes.append(-1)
        return place, self.phase

    @contextmanager
    def _module_hooks(self) -> Iterator[None]:
        handles = []
        for module, name in self._names.items():
            handles.append(
                module.register_forward_pre_hook(self._entering(name, type(module).__name__), with_kwargs=True)
            )
            handles.append(module.register_forward_hook(self._leaving, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, name: str, kind: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
            reads = [self._followed[_key(leaf)] for leaf in tensors if _key(leaf) in self._followed]
            self._stack.append(_Called(name, kind, len(self._moments), reads))

        return enter

    def _leaving(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            called = self._stack.pop()
            called.stop = len(self._moments)
            self._calls.append(called)

    def _block(self, called: _Called, index: dict[int, int]) -> ModuleCall:
        inside = set(self._nodes[called.start : called.stop])
        back = next(
            (
                at
                for at in range(called.stop, len(self._moments))
                if self._moments[at][2] == "backward" and self._nodes[at] in inside
            ),
            None,
        )
        reads = tuple(index[id(storage)] for storage in called.reads)
        return ModuleCall(called.module, called.name, called.start, called.stop, back, reads)

    # What is alive.

    def _follow(self, tensor: torch.Tensor, kind: Kind, place: tuple[str, str, str]) -> None:
        key = _key(tensor)
        if key in self._followed:
            return
        storage = tensor.untyped_storage()
        start = max(0, len(self._moments) - 1)
        made = _Storage(storage.nbytes(), start, kind, place)

        def freed(_: Any) -> None:
            made.end = len(self._moments)
            self._followed.pop(key, None)

        made.reference = weakref.ref(storage, freed)
        self._followed[key] = made
        self._storages.append(made)

    def _pack(self, tensor: torch.Tensor) -> Any:
        found = self._followed.get(_key(tensor))
        if found is not None:
            if found.kind == "temporary":
                found.kind = "saved"
            found.keepers.append(_latest_node())
        if tensor.grad_fn is None:
            return tensor
        # An output that is saved as itself would keep its own node alive for ever.
        with torch._C._DisableTorchDispatch():
            return tensor.detach()

    # What the allocator counted.

    def _allocated(self) -> list[tuple[int, int]]:
        if self.device.type == "cuda":
            base = self.standing - self.start
            return [(level + base, top + base) for level, top in self._counts[:-1]]
        if self._profiler is not None:
            return [(level + self.standing, top + self.standing) for level, top in self._profiled()]
        return self._counted()

    def _profiled(self) -> list[tuple[int, int]]:
        """The curve of allocations cut where operations begin."""
        counts: list[tuple[int, int]] = []
        level = top = 0
        events = self._profiler.profiler.kineto_results.events()
        for event in sorted(events, key=lambda each: each.start_ns()):
            name = event.name()
            if name == "[memory]" and event.device_type() == _CPU:
                level += event.nbytes()
                top = max(top, level)
            elif name.startswith(_MARK):
                if counts:
                    counts[-1] = counts[-1][0], top
                counts.append((level, level))
                top = level
        if counts:
            counts[-1] = counts[-1][0], max(counts[-1][1], top)
        return counts

    def _counted(self) -> list[tuple[int, int]]:
        change = [0] * (len(self._moments) + 1)
        for storage in self._storages:
            change[storage.start] += storage.bytes
            if storage.end is not None:
                change[storage.end] -= storage.bytes
        counts, level = [], 0
        for at in range(len(self._moments)):
            before, level = level, level + change[at]
            counts.append((before, max(before, level)))
        return counts


def _unpack(packed: Any) -> Any:
    return packed


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _latest_node() -> int:
    """The sequence number of the autograd node that was made last: the one whose operation runs now."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def _line() -> str:
    """The innermost line that is neither torch's nor ours."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) and not file.startswith("<"):
            return f"{file.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _short(name: str) -> str:
    return name.removeprefix("aten::").removeprefix("_")
