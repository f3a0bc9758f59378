"""Transfers that overlap with computing: puts are done by a thread of their own, gets can be asked for ahead.

``put`` copies the tree and returns; the copy is written in the background. ``lend`` does so without
a copy, for whoever can leave the tree as it is until it is written. At most ``pending`` trees wait
or are being written, and one more put waits for the oldest. What waits is not lost to
sight: ``get`` gives it from memory, ``drop`` calls it off, a second put under its key replaces it.
Transfers run one at a time, those asked for ahead before those that wait to be written, and those
of one key in the order in which they were asked for: a slot is never used again before the copy
into it or out of it is complete. An error in the background is raised by the next call, whichever
that is, and at the latest by ``close``; the snapshot that could not be written is gone then.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from ..errors import StoreError
from ..tree import copy as copy_of
from ..tree import nbytes as size_of
from .catalogue import Catalogue
from .contract import Key, Store
from .worker import Task, Worker, stop


class Background(Store):
    """Works on ``store``, which nobody else may use meanwhile, and closes it with itself."""

    in_background = True

    def __init__(self, store: Store, pending: int = 2) -> None:
        if pending < 1:
            raise ValueError(f"pending must be at least 1, not {pending}")
        self.store = store
        self.pending = pending
        self._held: Catalogue[None] = Catalogue("this Background store")
        self._held.entries.update(dict.fromkeys(store.keys()))
        self._worker = Worker(store, self._held)
        self._finalize = weakref.finalize(self, stop, self._worker)

    @property
    def lossy(self) -> bool:  # type: ignore[override]
        return self.store.lossy

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        return self.store.in_memory

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self.store.pickle

    @property
    def pending_bytes(self) -> int:
        """What is held in memory: copies that wait to be written, and what was read ahead."""
        return self._worker.pending_bytes()

    def put(self, key: Key, tree: Any) -> None:
        worker = self._wait_for_room(key)
        self._write(worker, Task("put", key, copy_of(tree), size_of(tree)))

    def lend(self, key: Key, tree: Any) -> Task:
        """Put a tree that stays as it is until the task is ``done``."""
        worker = self._wait_for_room(key)
        task = Task("put", key, tree, size_of(tree))
        self._write(worker, task)
        return task

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
            worker.submit(Task("drop", key))
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
            task = worker.ahead[key] = Task("get", key)
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

    def detach(self) -> None:
        """End the thread, and leave the store open to whoever it belongs to."""
        self._finalize.detach()
        self._worker.stop()

    def _ready(self, key: Key) -> Worker:
        self._held.check(key)
        worker = self._worker
        if worker.process != os.getpid():
            raise StoreError(f"this store belongs to process {worker.process}, which this one was forked from")
        with worker.changed:
            worker.raise_error()
        return worker

    def _wait_for_room(self, key: Key) -> Worker:
        worker = self._ready(key)
        with worker.changed:
            worker.changed.wait_for(lambda: worker.copies() < self.pending)
            worker.raise_error()
        return worker

    def _write(self, worker: Worker, task: Task) -> None:
        key = task.key
        with worker.changed:
            worker.ahead.pop(key, None)
            worker.call_off(key)
            self._held.entries[key] = None
            worker.writing[key] = task
            worker.submit(task)
