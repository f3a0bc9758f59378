"""Snapshots of a loop: states held by reference, and proof that nobody wrote into them.

A step gives its result in new tensors, so keeping a state costs its bytes and no copy. Tensors count
the writes into them; a count that has changed between keeping a state and using it means that it is
not the state any more, and is refused. What can change without telling (NumPy arrays, objects) is
copied on the way in and on the way out, and so are the leaves that the step is known to write into.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from ...errors import ReplayError
from ...tree import kind_of
from ...tree.leaves import PLAIN
from .ambient import Draws
from .buffers import Values


class KeptState(NamedTuple):
    """One snapshot."""

    step: int
    leaves: list[Any]
    versions: list[int]
    draws: Draws
    buffers: Values


class TensorSlots:
    """Numbered slots in the memory that the states are in."""

    def __init__(self, where: str, written: Collection[int] = ()) -> None:
        self.written, self.where = frozenset(written), where
        self._slots: dict[int, KeptState] = {}

    def put(self, slot: int, step: int, state: Sequence[Any], draws: Draws, buffers: Values) -> None:
        leaves = self.private(state)
        self._slots[slot] = KeptState(step, leaves, list(map(version, leaves)), draws, buffers)

    def get(self, slot: int) -> KeptState:
        """A snapshot whose leaves are to go on from; the slot keeps it."""
        kept = self._slots[slot]
        for place, (leaf, count) in enumerate(zip(kept.leaves, kept.versions)):
            if version(leaf) != count:
                refuse_written(f"leaf {place} of the state before step {kept.step}", self.where)
        return kept._replace(leaves=self.private(kept.leaves))

    def free(self, slot: int) -> None:
        del self._slots[slot]

    def clear(self) -> None:
        self._slots.clear()

    def held(self) -> dict[int, KeptState]:
        return self._slots

    def private(self, state: Sequence[Any]) -> list[Any]:
        """The leaves, copied where they may be written into."""
        return [
            _copied(leaf) if place in self.written or not isinstance(leaf, torch.Tensor) else leaf
            for place, leaf in enumerate(state)
        ]


def version(leaf: Any) -> int:
    """How often a tensor was written into."""
    return leaf._version if isinstance(leaf, torch.Tensor) and not leaf.is_inference() else 0


def refuse_written(what: str, where: str, cause: Exception | None = None) -> NoReturn:
    """Say that a value is not what it was."""
    raise ReplayError(
        f"{what} was written into since {where} was given it: the way back needs it as it was. Return results in new "
        "tensors (x = x + y in place of x += y), and change parameters only after backward()"
    ) from cause


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    if isinstance(leaf, torch.nn.Module | torch.distributions.Distribution):
        return leaf  # a copy would have other parameters
    kind = kind_of(leaf)
    return leaf if kind is PLAIN else kind.copy(leaf)
