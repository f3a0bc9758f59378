"""Snapshots of GPU tensors in pinned host memory, moved while the GPU computes.

A put starts a copy on a stream of its own and returns; a get starts one the other way and lets the
stream that computes wait for it, not the program. Buffers are pinned once and used again, since
pinning is slow and stops the device. At most ``pending`` copies out are under way: one more put waits
for the oldest, so that what was given away is really given back. Tensors on the CPU, and everything
that is not a tensor, is copied as in ``Memory``.

With a ``limit``, snapshots that no longer fit go to the store ``behind``, oldest first: a way back
asks for the youngest first.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ..errors import StoreFull
from ..tree import flatten, kind_of, nbytes, unflatten
from ..units import format_bytes, parse_bytes
from .background import Background
from .catalogue import Catalogue
from .contract import Key, Store
from .extra import require

_GRAIN = 512


class _Copy(NamedTuple):
    """A tensor on its way to the host, or there."""

    buffer: Any
    host: Any
    device: Any
    done: Any


class _Entry(NamedTuple):
    structure: Any
    leaves: list[Any]
    size: int


class Host(Store):
    """Keeps snapshots of GPU tensors in the memory of the host.

    ``limit`` bounds the pinned memory, in bytes or as text; without a store ``behind`` it, a put that does not
    fit raises ``StoreFull``.

    >>> with Host() as store:
    ...     store.put("first", {"u": [1.0, 2.0]})
    ...     store.get("first")
    {'u': [1.0, 2.0]}
    """

    in_background = True

    def __init__(self, limit: float | str | None = None, behind: Store | None = None, pending: int = 2) -> None:
        if behind is not None and limit is None:
            raise ValueError("a store behind this one is for what exceeds its limit: give limit=")
        if pending < 1:
            raise ValueError(f"pending must be at least 1, not {pending}")
        self._torch: Any = require("torch", "torch", "the Host store")
        self.limit = None if limit is None else parse_bytes(limit)
        self.behind = None if behind is None else Background(behind)
        self.pending = pending
        self._held: Catalogue[_Entry | None] = Catalogue("this Host store")
        self._nbytes = 0
        self._pool: dict[int, list[Any]] = {}
        self._streams: dict[Any, tuple[Any, Any]] = {}
        self._flying: deque[Any] = deque()
        self._ahead: dict[Key, Any] = {}
        self._returning: list[tuple[Any, Any]] = []

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        if key in self._held.entries:
            self.drop(key)
        size = nbytes(tree)
        self._make_room(size)
        leaves, structure = flatten(tree)
        copies = {id(leaf): self._out(leaf) for leaf in {id(leaf): leaf for leaf in leaves}.values()}
        entry = _Entry(structure, [copies[id(leaf)] for leaf in leaves], size)
        self._held.entries[key] = entry
        self._nbytes += size

    def get(self, key: Key) -> Any:
        entry = self._held.find(key)
        if key in self._ahead:
            return self._ready(self._ahead.pop(key))
        if entry is None:
            return self._onto_device(self._behind.get(key))
        return self._ready(self._in(entry))

    def drop(self, key: Key) -> None:
        entry = self._held.find(key)
        self._ahead.pop(key, None)
        del self._held.entries[key]
        if entry is None:
            self._behind.drop(key)
        else:
            self._nbytes -= entry.size
            self._release(entry)

    def prefetch(self, key: Key) -> bool:
        """Start to bring back a snapshot that will be asked for soon; it takes room on the device from now on."""
        entry = self._held.find(key)
        if key in self._ahead:
            return True
        if entry is None:
            return self._behind.prefetch(key)
        self._ahead[key] = self._in(entry)
        return True

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        behind = 0 if self.behind is None or self._held.closed else self.behind.nbytes
        return self._nbytes + behind

    def flush(self) -> None:
        """Wait for all copies out."""
        self._held.check("")
        while self._flying:
            self._flying.popleft().synchronize()
        if self.behind is not None:
            self.behind.flush()

    def close(self) -> None:
        if self._held.closed:
            return
        while self._flying:
            self._flying.popleft().synchronize()
        self._held.close()
        self._pool.clear()
        self._ahead.clear()
        self._returning.clear()
        self._nbytes = 0
        if self.behind is not None:
            self.behind.close()

    @property
    def _behind(self) -> Background:
        assert self.behind is not None
        return self.behind

    def _make_room(self, size: int) -> None:
        if self.limit is None:
            return
        while self._nbytes + size > self.limit:
            oldest = next((key for key, entry in self._held.entries.items() if entry is not None), None)
            if self.behind is None or oldest is None:
                raise StoreFull(
                    f"a snapshot of {format_bytes(size)} does not fit: {format_bytes(self._nbytes)} of "
                    f"{format_bytes(self.limit)} are in use; give a higher limit=, or a store behind="
                )
            self._spill(oldest)

    def _spill(self, key: Key) -> None:
        entry = self._held.entries[key]
        assert entry is not None
        leaves = [self._arrived(leaf) if isinstance(leaf, _Copy) else leaf for leaf in entry.leaves]
        devices = [str(leaf.device) if isinstance(leaf, _Copy) else None for leaf in entry.leaves]
        self._behind.put(key, (unflatten(entry.structure, leaves), devices))
        self._held.entries[key] = None
        self._nbytes -= entry.size
        self._release(entry)

    def _arrived(self, copy: _Copy) -> Any:
        copy.done.synchronize()
        return copy.host

    def _onto_device(self, kept: Any) -> Any:
        tree, devices = kept
        leaves, structure = flatten(tree)
        return unflatten(
            structure, [leaf if device is None else leaf.to(device) for leaf, device in zip(leaves, devices)]
        )

    def _out(self, leaf: Any) -> Any:
        torch = self._torch
        if not isinstance(leaf, torch.Tensor) or leaf.device.type != "cuda":
            return kind_of(leaf).copy(leaf)
        leaf = leaf.detach()
        while len(self._flying) >= self.pending:
            self._flying.popleft().synchronize()
        stream = self._streams_of(leaf.device)[0]
        dense = leaf if _is_dense(leaf) else leaf.contiguous()
        buffer = self._buffer(dense.numel() * dense.element_size())
        host = buffer[: dense.numel() * dense.element_size()].view(dense.dtype).as_strided(dense.shape, dense.stride())
        stream.wait_stream(torch.cuda.current_stream(leaf.device))
        with torch.cuda.stream(stream):
            host.copy_(dense, non_blocking=True)
            done = torch.cuda.Event()
            done.record(stream)
        dense.record_stream(stream)
        self._flying.append(done)
        return _Copy(buffer, host, leaf.device, done)

    def _in(self, entry: _Entry) -> tuple[Any, Any, list[Any]]:
        """The snapshot on its way to the device, and what to wait for."""
        made: dict[int, Any] = {}
        events: list[Any] = []
        for leaf in entry.leaves:
            if id(leaf) not in made:
                made[id(leaf)] = self._back(leaf, events) if isinstance(leaf, _Copy) else kind_of(leaf).copy(leaf)
        return entry.structure, [made[id(leaf)] for leaf in entry.leaves], events

    def _back(self, copy: _Copy, events: list[Any]) -> Any:
        torch, host = self._torch, copy.host
        stream = self._streams_of(copy.device)[1]
        tensor = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=copy.device)
        stream.wait_stream(torch.cuda.current_stream(copy.device))
        with torch.cuda.stream(stream):
            stream.wait_event(copy.done)
            tensor.copy_(host, non_blocking=True)
            done = torch.cuda.Event()
            done.record(stream)
        tensor.record_stream(stream)
        events.append((copy.device, done))
        self._returning.append((copy.buffer, done))
        return tensor

    def _ready(self, coming: tuple[Any, Any, list[Any]]) -> Any:
        structure, leaves, events = coming
        for device, done in events:
            self._torch.cuda.current_stream(device).wait_event(done)
        return unflatten(structure, leaves)

    def _streams_of(self, device: Any) -> tuple[Any, Any]:
        if device not in self._streams:
            self._streams[device] = (self._torch.cuda.Stream(device), self._torch.cuda.Stream(device))
        return self._streams[device]

    def _buffer(self, size: int) -> Any:
        rounded = -(-max(size, 1) // _GRAIN) * _GRAIN
        free = self._pool.get(rounded)
        if free:
            return free.pop()
        return self._torch.empty(rounded, dtype=self._torch.uint8, pin_memory=True)

    def _release(self, entry: _Entry) -> None:
        """Let buffers be used again, once whatever copies from them or into them is done."""
        for leaf in {id(leaf): leaf for leaf in entry.leaves}.values():
            if isinstance(leaf, _Copy):
                leaf.done.synchronize()
                for buffer, done in self._returning:
                    if buffer is leaf.buffer:
                        done.synchronize()
                self._pool.setdefault(leaf.buffer.numel(), []).append(leaf.buffer)
        self._returning = [(buffer, done) for buffer, done in self._returning if not done.query()]


def _is_dense(tensor: Any) -> bool:
    """Whether a tensor fills its memory without gaps, in any order of its axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
