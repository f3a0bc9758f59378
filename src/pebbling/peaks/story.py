"""What was alive when: the storages of one step with their lives, and the operations as moments of it.

Time is counted in operations. A life from 3 to 7 is there while operations 3 to 6 run, and is gone when 7 runs. What an
operation takes for itself while it runs is in the top of its moment, and in no life.

>>> story = Story(
...     moments=(Moment("mul", level=0, top=8), Moment("sin", level=8, top=20), Moment("sum", level=16, top=16)),
...     lives=(Life(8, 0, None, "saved", op="mul"), Life(8, 1, None, "temporary", op="sin")),
... )
>>> story.peak, story.when, story.inside
(20, 1, 4)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Kind = Literal[
    "parameter",
    "buffer",
    "batch",
    "argument",
    "gradient",
    "optimizer",
    "saved",
    "output",
    "result",
    "temporary",
    "other",
]
"""What a storage is: ``saved`` ones are kept by the forward pass for the backward pass."""

Phase = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One operation: bytes there when it begins (``level``), and the most until the next one begins (``top``)."""

    op: str
    module: str = ""
    line: str = ""
    phase: Phase = "forward"
    level: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """One storage: its bytes, the operation that made it, and the one that no longer saw it (``None``: it stayed)."""

    bytes: int
    start: int
    end: int | None
    kind: Kind
    op: str = ""
    module: str = ""
    line: str = ""
    saver: str = ""
    """The operation that keeps it for the backward pass."""
    saved: int | None = None
    """The number of the last operation that keeps it for the backward pass."""

    def at(self, moment: int) -> bool:
        """Whether it is there while an operation runs."""
        return self.start <= moment and (self.end is None or moment < self.end)


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module: from its first operation to its last, and where its backward pass begins."""

    module: str
    name: str
    """The class of the module."""
    start: int
    stop: int
    back: int | None
    reads: tuple[int, ...] = ()
    """Numbers of the lives of its arguments."""


@dataclass(frozen=True)
class Story:
    """One step: all that was alive, operation by operation."""

    moments: tuple[Moment, ...]
    lives: tuple[Life, ...]
    blocks: tuple[ModuleCall, ...] = ()

    @cached_property
    def tops(self) -> np.ndarray:
        """The most bytes of each moment."""
        return np.array([moment.top for moment in self.moments], np.int64)

    @property
    def peak(self) -> int:
        """The most bytes at any time."""
        return int(self.tops.max(initial=0))

    @property
    def when(self) -> int:
        """The operation during which the peak is."""
        return int(self.tops.argmax()) if self.moments else 0

    @cached_property
    def alive(self) -> tuple[Life, ...]:
        """What is there at the peak, largest first."""
        return tuple(sorted((life for life in self.lives if life.at(self.when)), key=lambda life: -life.bytes))

    @property
    def inside(self) -> int:
        """Bytes of the peak that are no storage that was followed: what the operation itself takes, mostly."""
        return self.peak - sum(life.bytes for life in self.alive)

    def levels(self, lives: Iterable[Life]) -> np.ndarray:
        """Bytes of some lives at every moment."""
        change = np.zeros(len(self.moments) + 1, np.int64)
        for life in lives:
            change[life.start] += life.bytes
            if life.end is not None:
                change[min(life.end, len(self.moments))] -= life.bytes
        return np.cumsum(change)[:-1]
