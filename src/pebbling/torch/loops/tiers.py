"""Where the snapshots of a loop are kept: with the states themselves, or in a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

import torch

from ...chain import Online
from ...errors import PebblingError
from ...store import Store
from .ambient import Draws
from .blocked import Blocked
from .buffers import Values
from .snapshots import KeptState, TensorSlots


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


class Stored:
    """Slots in a store; where it can read ahead, the one that the way back will come to next is asked for early."""

    def __init__(self, store: Store) -> None:
        self._store, self._prefix = store, uuid4().hex[:12]
        self._ahead: Any = getattr(store, "prefetch", None)
        self._kept: dict[int, KeptState] = {}

    def put(self, slot: int, step: int, state: Sequence[Any], draws: Draws, buffers: Values) -> None:
        # One object stays one object: the sums of its gradients depend on it.
        plain = {id(leaf): leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in state}
        self._store.put(self._key(slot), [plain[id(leaf)] for leaf in state])
        self._kept[slot] = KeptState(step, [], [], draws, buffers)

    def get(self, slot: int) -> KeptState:
        kept = self._kept[slot]
        leaves = self._store.get(self._key(slot))
        below = [(other.step, number) for number, other in self._kept.items() if other.step < kept.step]
        if below and self._ahead is not None:
            self._ahead(self._key(max(below)[1]))
        return kept._replace(leaves=leaves)

    def free(self, slot: int) -> None:
        del self._kept[slot]
        self._store.drop(self._key(slot))

    def clear(self) -> None:
        for slot in list(self._kept):
            self.free(slot)

    def __del__(self) -> None:
        with suppress(PebblingError):
            self.clear()

    def _key(self, slot: int) -> str:
        return f"{self._prefix} {slot}"


def tiers_of(course: Blocked, store: Store | None, in_bytes: bool, shelf: TensorSlots) -> list[TensorTier]:
    """Memory for the fast tier; the store for the slow one, or for the only one unless bytes chose the schedule."""
    count = 1 if isinstance(course.schedule, Online) else len(course.schedule.model.rooms)
    if count > 2:
        raise ValueError(f"the schedule has {count} tiers, and a loop uses memory and one store")
    if store is None:
        if count > 1:
            raise ValueError(f"the schedule has {count} tiers: give store= for the slow one, such as Host()")
        return [shelf]
    if count == 1:
        return [shelf] if in_bytes or course.offload else [Stored(store)]
    return [shelf, Stored(store)]
