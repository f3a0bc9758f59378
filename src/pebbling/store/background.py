"""Transfers that overlap with computing: puts are done by a thread of their own, gets can be asked for ahead.

``put`` copies the tree and returns; the copy is written in the background. At most ``pending``
copies wait or are being written, and one more put waits for the oldest. What waits is not lost to
sight: ``get`` gives it from memory, ``drop`` calls it off, a second put under its key replaces it.
Transfers run one at a time, those asked for ahead before those that wait to be written, and those
of one key in the order in which they were asked for: a slot is never used again before the copy
into it or out of it is complete. An error in the background is raised by the next call, whichever
that is, and at the latest by ``close``; the snapshot that could not be written is gone then.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptSnapshot, StoreError, StoreFull
from ..tree import copy as copy_of
from ..tree import nbytes as size_of
from .catalogue import Catalogue
from .contract import Key, Store


class Background(Store):
    """Works on ``store``, which nobody else may use meanwhile, and closes it with itself."""

    def __init__(self, store: Store, pending: int = 2) -> None:
        if pending < 1:
            raise ValueError(f"pending must be at least 1, not {pending}")
        self.store = store
        self.pending = pending
        self._process = os.getpid()
        self._held: Catalogue[None] = Catalogue("this Background store")
        self._held.entries.update(dict.fromkeys(store.keys()))
        self._worker = _Worker(store, self._held)
        self._finalize = weakref.finalize(self, _stop, self._worker)

    @property
    def lossy(self) -> bool:  # type: ignore[override]
        return self.store.lossy

    @property
    def pending_bytes(self) -> int:
        """What is held in memory: copies that wait to be written, and what was read ahead."""
        return self._worker.pending_bytes()

    def put(self, key: Key, tree: Any) -> None:
        worker = self._ready(key)
        with worker.changed:
            worker.changed.wait_for(lambda: worker.copies() < self.pending)
            worker.raise_error()
        task = _Task("put", key, copy_of(tree), size_of(tree))
        with worker.changed:
            worker.ahead.pop(key, None)
            worker.call_off(key)
            self._held.entries[key] = None
            worker.writing[key] = task
            worker.submit(task)

    def get(self, key: Key) -> Any:
        worker = self._ready(key)
        self._held.find(key)
        with worker.changed:
            if self.lossy:
                # What waits is still exact, and what comes out must not depend on how far it got.
                worker.changed.wait_for(lambda: key not in worker.writing)
                worker.raise_error()
            waiting = worker.writing.get(key)
            ahead = worker.ahead.pop(key, None)
            if ahead is not None:
                worker.changed.wait_for(lambda: ahead.done)
        if waiting is not None:
            return copy_of(waiting.tree)
        if ahead is None:
            with worker.access:
                return self.store.get(key)
        if ahead.error is not None:
            raise ahead.error
        return ahead.tree

    def drop(self, key: Key) -> None:
        worker = self._ready(key)
        self._held.find(key)
        with worker.changed:
            worker.ahead.pop(key, None)
            worker.call_off(key)
            worker.submit(_Task("drop", key))
            self._held.entries.pop(key, None)

    def prefetch(self, key: Key) -> bool:
        """Start to read a snapshot that will be asked for soon; whether there was room to do so.

        As many may be read ahead as may wait to be written.
        """
        worker = self._ready(key)
        self._held.find(key)
        with worker.changed:
            if key in worker.writing or key in worker.ahead:
                return True
            if len(worker.ahead) >= self.pending:
                return False
            task = worker.ahead[key] = _Task("get", key)
            worker.submit(task)
        return True

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        """The bytes in the store, and of what waits to get there."""
        with self._worker.changed:
            return self.store.nbytes + sum(task.size for task in self._worker.writing.values())

    def reserve(self, count: int, nbytes: int) -> None:
        with self._ready("").access:
            self.store.reserve(count, nbytes)

    def flush(self) -> None:
        worker = self._ready("")
        with worker.changed:
            worker.changed.wait_for(worker.idle)
            worker.raise_error()
        with worker.access:
            self.store.flush()

    def close(self) -> None:
        """Finish what waits, then close the store; raises what went wrong in the background."""
        if self._held.closed:
            return
        try:
            self._finalize()
            self._worker.raise_error()
        finally:
            self._held.close()

    def _ready(self, key: Key) -> _Worker:
        self._held.check(key)
        if self._process != os.getpid():
            raise StoreError(f"this store belongs to process {self._process}, which this one was forked from")
        with self._worker.changed:
            self._worker.raise_error()
        return self._worker


@dataclass(eq=False)
class _Task:
    name: str
    key: Key
    tree: Any = None
    size: int = 0
    done: bool = False
    error: Exception | None = None


class _Worker:
    """The thread and what it shares; whoever reads or changes it holds ``changed``."""

    def __init__(self, store: Store, held: Catalogue[None]) -> None:
        self.store = store
        self.held = held
        self.changed = threading.Condition()
        self.access = threading.Lock()
        self.writing: dict[Key, _Task] = {}
        self.ahead: dict[Key, _Task] = {}
        self._reads: deque[_Task] = deque()
        self._writes: deque[_Task] = deque()
        self._running: _Task | None = None
        self._errors: list[tuple[_Task, BaseException]] = []
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="pebbling store", daemon=True)
        self._thread.start()

    def submit(self, task: _Task) -> None:
        (self._reads if task.name == "get" else self._writes).append(task)
        self.changed.notify_all()

    def call_off(self, key: Key) -> None:
        """Forget a copy that waits to be written, unless that has begun."""
        task = self.writing.get(key)
        if task is not None and task is not self._running:
            self._writes.remove(task)
        self.writing.pop(key, None)
        self.changed.notify_all()

    def copies(self) -> int:
        """How many copies wait or are being written."""
        running = self._running is not None and self._running.name == "put"
        return running + sum(task.name == "put" for task in self._writes)

    def idle(self) -> bool:
        return not (self._reads or self._writes or self._running)

    def pending_bytes(self) -> int:
        with self.changed:
            tasks = {id(task): task for task in (*self.writing.values(), *self.ahead.values())}
            if self._running is not None:
                tasks[id(self._running)] = self._running
            return sum(task.size for task in tasks.values())

    def raise_error(self) -> None:
        if not self._errors:
            return
        task, error = self._errors.pop(0)
        kind = next((kind for kind in (StoreFull, CorruptSnapshot) if isinstance(error, kind)), StoreError)
        raise kind(f"{task.name} of snapshot {task.key!r} failed in the background: {error}") from error

    def stop(self) -> None:
        """Finish what waits, then end the thread."""
        with self.changed:
            self._closing = True
            self._reads.clear()
            self.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._reads or self._writes or self._closing)
                if not (self._reads or self._writes):
                    return
                task = self._running = (self._reads or self._writes).popleft()
            error: BaseException | None = None
            try:
                with self.access:
                    self._do(task)
            except BaseException as caught:
                error = caught
            with self.changed:
                self._finish(task, error)

    def _do(self, task: _Task) -> None:
        if task.name == "put":
            self.store.put(task.key, task.tree)
        elif task.name == "get":
            task.tree = self.store.get(task.key)
            task.size = size_of(task.tree)
        elif task.key in self.store:
            self.store.drop(task.key)

    def _finish(self, task: _Task, error: BaseException | None) -> None:
        self._running = None
        task.done = True
        latest = self.writing.get(task.key) is task
        if latest:
            del self.writing[task.key]
        if task.name == "get" and isinstance(error, Exception):
            # Whoever asked for it is told when they come for it.
            task.error = error
        elif error is not None:
            self._errors.append((task, error))
            if task.name == "put" and latest:
                self.held.entries.pop(task.key, None)
                self._writes.append(_Task("drop", task.key))
        self.changed.notify_all()


def _stop(worker: _Worker) -> None:
    try:
        worker.stop()
    finally:
        worker.store.close()
