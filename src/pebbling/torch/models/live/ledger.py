"""Bytes of the storages that a step has made, and when each came and went: what no allocator tells on the CPU."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .away import SMALL
from .operators import plain, tensors
from .values import address


@dataclass(slots=True, eq=False)
class Lifetime:
    """A storage, from the moment it came to the one it went."""

    bytes: int
    born: int
    died: int | None = None
    number: int | None = None
    """The value of the forward pass that it is; None for one of the backward pass."""
    copied: bool = False
    """Whether it is a copy of a value of the forward pass that had been moved away."""


class Ledger:
    """What is alive, and the most that was."""

    def __init__(self) -> None:
        self.clock = 0
        self.live = self.peak = 0
        self.gradients = self.gradients_peak = 0
        """Bytes that are no values of the forward pass, and the most of them since somebody last looked."""
        self.small = self.small_peak = 0
        """Bytes of values of the forward pass that are too small for a plan."""
        self.stays: list[Lifetime] = []
        self._known: dict[int, Any] = {}

    def knows(self, place: int) -> bool:
        """Whether a storage is one of the step."""
        return place in self._known

    def see(self, result: Any, known: set[int]) -> None:
        """Count what an operation made."""
        for tensor in tensors(result):
            if isinstance(tensor, Tensor) and plain(tensor):
                place = address(tensor)
                if place and place not in known and place not in self._known:
                    self.add(tensor.untyped_storage())

    def add(self, storage: Any, number: int | None = None, copied: bool = False) -> Lifetime:
        """Count a storage until it is gone."""
        stay = Lifetime(storage.nbytes(), self.clock, None, number, copied)
        self.stays.append(stay)
        place = storage._cdata
        self._known[place] = weakref.ref(storage, lambda _: self._gone(place, stay)), stay
        self.live += stay.bytes
        self.peak = max(self.peak, self.live)
        if number is None and not copied:
            self.gradients += stay.bytes
            self.gradients_peak = max(self.gradients_peak, self.gradients)
        elif stay.bytes <= SMALL:
            self.small += stay.bytes
            self.small_peak = max(self.small_peak, self.small)
        return stay

    def _gone(self, place: int, stay: Lifetime) -> None:
        self._known.pop(place, None)
        self.live -= stay.bytes
        if stay.number is None and not stay.copied:
            self.gradients -= stay.bytes
        elif stay.bytes <= SMALL:
            self.small -= stay.bytes
        if stay.died is None:
            stay.died = self.clock

    def outlive(self, place: int) -> None:
        """A storage stays for good, as the state of an optimizer does: it is none of the step's."""
        if place in self._known:
            _, stay = self._known[place]
            self._gone(place, stay)
            self.stays.remove(stay)

    def during(self, bytes: int) -> None:
        """Count bytes that are taken for a moment."""
        self.peak = max(self.peak, self.live + bytes)
