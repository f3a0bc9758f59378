"""Numbered slots in a store, for one run: written in the background, read ahead, and named after the run.

    slots = StoreSlots(store)
    slots.put(0, 17, state, done)     returns at once; ``done()`` is called when the state is written
    slots.expect(0)                   starts to read it
    slots.get(0)                      the state, or ``CorruptSnapshot`` if it is not what was put there
    slots.clear()                     the store is as it was found

Runs of one process may share a store: they share the thread behind it too. A run that is ``alone`` has the store for
itself, and refuses one that is in use. What dead processes left in a store is removed when the first run opens it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import PebblingError
from ..store import Background, Memory, Store
from ..store.worker import NAME, Task
from .leftovers import key_prefix, sweep_out


class _Door:
    """What all runs of this process that use a store share."""

    def __init__(self, store: Store, alone: bool) -> None:
        sweep_out(store)
        self.store, self.alone, self.users = store, alone, 0
        # A store that works in the background by itself needs no thread of ours, unless one run has it alone.
        self.background: Any = store if store.in_background and not alone else Background(store)

    def leave(self) -> None:
        """One run less."""
        self.users -= 1
        if self.users:
            return
        del _DOORS[id(self.store)]
        if self.background is self.store:
            return
        try:
            self.background.flush()
        finally:
            self.background.detach()


_DOORS: dict[int, _Door] = {}


def in_use(store: Store) -> bool:
    """Whether a run of this process has the store."""
    return id(store) in _DOORS


def behind(store: Store) -> Any:
    """The store as it may be used now: through the thread behind it, where runs of this process use it."""
    door = _DOORS.get(id(store))
    return store if door is None else door.background


def _enter(store: Store, alone: bool) -> _Door:
    door = _DOORS.get(id(store))
    if door is not None and (alone or door.alone):
        raise ValueError(f"this {type(store).__name__} is in use by another run: give each run a store of its own")
    if door is None:
        door = _DOORS[id(store)] = _Door(store, alone)
    door.users += 1
    return door


class _Inside(threading.local):
    """How many calls of this thread are at work on a store."""

    depth = 0


_inside = _Inside()


@contextmanager
def _at_work() -> Iterator[None]:
    _inside.depth += 1
    try:
        yield
    finally:
        _inside.depth -= 1


class StoreSlots:
    """The slots of one run."""

    def __init__(self, store: Store, prefix: str | None = None, alone: bool = False) -> None:
        """``prefix`` is how keys begin: that of a run that may be resumed, or one of its own."""
        self.name = "memory store" if isinstance(store, Memory) else type(store).__name__.lower()
        self.store = store
        self.prefix = key_prefix(None) if prefix is None else prefix
        self._door: _Door | None = None
        self._lent: list[tuple[Task, Callable[[], None]]] = []
        self.steps: dict[int, int] = {}
        """The steps whose states are in the slots."""
        self._door = _enter(store, alone)

    def reserve(self, count: int, nbytes: int) -> None:
        """Make sure of room for so many snapshots besides what the store holds, or raise ``StoreFull``."""
        background = self._background
        with _at_work():
            background.reserve(len(background.keys()) + count, nbytes)

    def put(self, slot: int, step: int, tree: Any, done: Callable[[], None] | None = None) -> None:
        """Keep the state before ``step``.

        It is copied, or, with ``done``, lent: it must stay as it is until ``done`` is called.
        """
        background, key = self._background, self.key(step)
        with _at_work():
            if done is None or not isinstance(background, Background):
                background.put(key, tree)
                if done is not None:
                    done()
            else:
                task = background.lend(key, tree)
                self._let_go()
                self._lent.append((task, done))
        self.steps[slot] = step

    def get(self, slot: int) -> Any:
        """The state in a slot, which stays there."""
        self._let_go()
        with _at_work():
            return self._background.get(self.key(self.steps[slot]))

    def free(self, slot: int) -> None:
        """Empty a slot."""
        with _at_work():
            self._background.drop(self.key(self.steps.pop(slot)))

    def expect(self, slot: int) -> None:
        """Start to read the state of a slot that will be asked for next."""
        if slot in self.steps:
            with _at_work():
                self._background.prefetch(self.key(self.steps[slot]))

    def expect_before(self, step: int) -> None:
        """Start to read the latest state before ``step``, which the way back will come to next."""
        below = [(held, slot) for slot, held in self.steps.items() if held < step]
        if below:
            self.expect(max(below)[1])

    def has(self, step: int) -> bool:
        """Whether the store holds the state of a step, perhaps from before this process."""
        return self.key(step) in self._background

    def key(self, step: int) -> str:
        """The key of a state."""
        return f"{self.prefix}{step}"

    def clear(self, drop: bool = True) -> None:
        """Let go of the store, which is the user's; ``drop`` the snapshots, unless the run may be resumed from them."""
        door, self._door = self._door, None
        if door is None:
            return
        with _at_work():
            self._leave(door, drop)

    def _leave(self, door: _Door, drop: bool) -> None:
        try:
            door.background.flush()
        finally:
            try:
                if drop and door.users > 1:
                    self._drop_all(door.background)
            finally:
                door.leave()
                for _, done in self._lent:
                    done()
                self._lent.clear()
                self.steps.clear()
                if drop and not in_use(self.store):
                    self._drop_all(self.store)

    def __del__(self) -> None:
        if self._door is None:
            return
        if _inside.depth or threading.current_thread().name == NAME:
            # Python collects garbage wherever it happens to be: here amid work on a store, whose locks are taken.
            with suppress(RuntimeError):
                threading.Thread(target=self._clear_quietly, daemon=True).start()
            return
        self._clear_quietly()

    def _clear_quietly(self) -> None:
        with suppress(PebblingError, OSError):  # the store may be closed by now
            self.clear()

    @property
    def _background(self) -> Any:
        assert self._door is not None
        return self._door.background

    def _let_go(self) -> None:
        """Tell of the states that are written."""
        waiting = []
        for task, done in self._lent:
            if task.done:
                done()
            else:
                waiting.append((task, done))
        self._lent = waiting

    def _drop_all(self, store: Any) -> None:
        """Drop every snapshot of the run, whatever happens to one of them."""
        trouble: list[Exception] = []
        keys = store.keys()
        for key in keys:
            if isinstance(key, str) and key.startswith(self.prefix):
                try:
                    store.drop(key)
                except (PebblingError, OSError) as error:
                    trouble.append(error)
        if trouble:
            raise trouble[0]
