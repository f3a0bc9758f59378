"""Where the snapshots of a loop are kept: with the states themselves, or in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ...budget import in_store, most_stored
from ...drive.store_slots import StoreSlots
from ...store import Store
from ..tensors import nbytes
from .ambient import Draws
from .blocked import Blocked
from .buffers import Values
from .snapshots import KeptState, TensorSlots, refuse_written, version


class TensorTier(Protocol):
    """Numbered slots."""

    def put(self, slot: int, step: int, state: Sequence[Any], draws: Draws, buffers: Values) -> None:
        """Keep the state before a step."""

    def get(self, slot: int) -> KeptState:
        """A snapshot to go on from; the slot keeps it."""

    def free(self, slot: int) -> None:
        """Empty a slot."""

    def clear(self) -> None:
        """Empty all slots."""

    def held(self) -> dict[int, KeptState]:
        """What is in the slots, by slot; the leaves of states in a store are not here."""


class StoredTensors:
    """Slots in a store, which writes in the background; what the way back will come to next is read ahead.

    A state is lent to the store, not copied: if somebody writes into it before it is written, that is seen afterwards.
    """

    def __init__(self, store: Store, most: int, memory: TensorSlots) -> None:
        """``most`` is how many snapshots the schedule keeps at once."""
        self._store, self._most, self._memory = store, most, memory
        self._slots: StoreSlots | None = None
        self._kept: dict[int, KeptState] = {}

    def put(self, slot: int, step: int, state: Sequence[Any], draws: Draws, buffers: Values) -> None:
        # One object stays one object: the sums of its gradients depend on it.
        plain = {id(leaf): leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in state}
        leaves = self._memory.private([plain[id(leaf)] for leaf in state])
        versions = list(map(version, leaves))

        def done() -> None:
            if list(map(version, leaves)) != versions:
                refuse_written(f"the state before step {step}", self._memory.where)

        if self._slots is None:
            self._slots = StoreSlots(self._store)
            self._slots.reserve(self._most, nbytes(leaves))
        self._slots.put(slot, step, leaves, done)
        self._kept[slot] = KeptState(step, [], [], draws, buffers)

    def get(self, slot: int) -> KeptState:
        kept = self._kept[slot]
        assert self._slots is not None
        leaves = self._slots.get(slot)
        self._slots.expect_before(kept.step)
        return kept._replace(leaves=leaves)

    def free(self, slot: int) -> None:
        del self._kept[slot]
        assert self._slots is not None
        self._slots.free(slot)

    def clear(self) -> None:
        self._kept.clear()
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.clear()

    def held(self) -> dict[int, KeptState]:
        return self._kept


def tiers_of(course: Blocked, store: Store | None, in_bytes: bool, shelf: TensorSlots) -> list[TensorTier]:
    """Memory for the fast tier; the store for the slow one, or for the only one unless bytes chose the schedule."""
    stored = in_store(course.schedule, store, in_bytes or course.offload)
    most = most_stored(course.schedule)
    return [StoredTensors(store, most, shelf) if store is not None and one else shelf for one in stored]
