"""The thread behind a background store: one transfer at a time, reads before writes, one key in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptSnapshot, StoreError, StoreFull
from ..tree import nbytes as size_of
from .catalogue import Catalogue
from .contract import Key, Store

NAME = "pebbling store"
"""What threads behind stores are called."""


@dataclass(eq=False)
class Task:
    """One transfer: what is to be done, and how it went; its tree is needed until it is ``done``."""

    name: str
    key: Key
    tree: Any = None
    size: int = 0
    done: bool = False
    error: BaseException | None = None


class Worker:
    """The thread and what it shares; whoever reads or changes it holds ``changed``."""

    def __init__(self, store: Store, held: Catalogue[None]) -> None:
        self.process = os.getpid()
        self.store = store
        self.held = held
        self.changed = threading.Condition()
        self.access = threading.Lock()
        self.writing: dict[Key, Task] = {}
        self.ahead: dict[Key, Task] = {}
        self._reads: deque[Task] = deque()
        self._writes: deque[Task] = deque()
        self._running: Task | None = None
        self._errors: list[tuple[Task, BaseException]] = []
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> None:
        (self._reads if task.name == "get" else self._writes).append(task)
        self.changed.notify_all()

    def call_off(self, key: Key) -> None:
        """Forget a copy that waits to be written, unless that has begun."""
        task = self.writing.get(key)
        if task is not None and task is not self._running:
            self._writes.remove(task)
            task.done = True
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

    def _do(self, task: Task) -> None:
        if task.name == "put":
            self.store.put(task.key, task.tree)
        elif task.name == "get":
            task.tree = self.store.get(task.key)
            task.size = size_of(task.tree)
        elif task.key in self.store:
            self.store.drop(task.key)

    def _finish(self, task: Task, error: BaseException | None) -> None:
        self._running = None
        task.done = True
        latest = self.writing.get(task.key) is task
        if latest:
            del self.writing[task.key]
        if task.name == "get":
            # Whoever asked for it is told when they come for it.
            task.error = error
        elif error is not None:
            self._errors.append((task, error))
            if task.name == "put" and latest:
                self.held.entries.pop(task.key, None)
                self._writes.append(Task("drop", task.key))
        self.changed.notify_all()


def stop(worker: Worker) -> None:
    """End a worker, and close its store whatever happens; a process that was forked off has no such thread."""
    try:
        if worker.process == os.getpid():
            worker.stop()
    finally:
        worker.store.close()
