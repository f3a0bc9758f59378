"""What was seen of one step: its operations, what autograd saved, and how the backward pass went. No tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PLACES = 1024
"""Values of one operation: numbers are the position of the operation times this, and a place; below 0 are values that
were made by something that could not be seen."""
WRITTEN = 512
"""The place from which on values are written in place."""

UNSEEN = "unseen"
"""What operations are called that made values and could not be seen."""
FOREIGN = "was written by something that torch does not see"


@dataclass(slots=True)
class RecordedOp:
    """One operation of the forward pass."""

    function: Any
    name: str
    module: str
    reads: tuple[int, ...] = ()
    made: tuple[tuple[int, int], ...] = ()
    """Positions in the result, and the values there."""
    written: tuple[tuple[int | None, int], ...] = ()
    """Values before and after, of what is written in place; None for what is from outside."""
    seconds: float = 0.0
    again: bool = False
    why: str = ""
    """Why it may not run again."""
    random: bool = False
    scratch: tuple[int, ...] = ()
    unfilled: bool = False
    outside: tuple[int, ...] = ()
    """Storages from before the step that it reads and that an optimizer updates in the backward pass."""
    signature: Any = None

    @property
    def values(self) -> tuple[int, ...]:
        """All values that it leaves."""
        return (*(number for _, number in self.made), *(new for _, new in self.written))


@dataclass(slots=True)
class BackwardTurn:
    """One node of autograd in the backward pass."""

    name: str
    reads: list[tuple[int, int]] = field(default_factory=list)
    """What it unpacked: positions among all that was saved, and the values."""
    seconds: float = 0.0
    peak: int = 0
    """Bytes that are no values of the forward pass, at the worst moment."""
    signatures: list[Any] = field(default_factory=list)
    done: bool = False


@dataclass(slots=True)
class Recorded:
    """One step, as it ran."""

    functions: list[Any]
    seen: dict[int, RecordedOp]
    sizes: dict[int, int]
    packs: list[int | None]
    died: dict[int, int]
    """Values that somebody held beyond their last use, with the operation during which they went."""
    outputs: set[int]
    """Values that are still held when the backward pass begins."""
    turns: list[BackwardTurn]
    gradients: list[tuple[int, int, int | None]]
    """Bytes of what the backward pass made, and the turns in which it came and went; None if it stayed."""
    foreign: dict[int, int]
    """Values that were made by something that could not be seen, with the operation before which they came."""
    small: int
    """The most bytes at once of values that are too small for a plan."""
    peak: int
    moved: int
    memory: int | None
    applied: dict[int, int] = field(default_factory=dict)
    """Storages that an optimizer updates in the backward pass, with the turn in which it did."""

    def only_before(self) -> None:
        """Run no operation again that reads a parameter which is updated before all that needs it is done."""
        if not self.applied:
            return
        last: dict[int, int] = {}
        for turn, each in enumerate(self.turns):
            for _, value in each.reads:
                last[value] = turn
        for seen in reversed(self.seen.values()):
            needed = max((last.get(value, -1) for value in seen.values), default=-1)
            for value in seen.reads:
                last[value] = max(last.get(value, -1), needed)
            if any(self.applied.get(place, needed) < needed for place in seen.outside):
                seen.again, seen.why = False, "reads a parameter that is updated before"

    @property
    def unproven(self) -> dict[str, int]:
        """Operations that can't be run again, by name and reason, with how many bytes that keeps."""
        found: dict[str, int] = {}
        packed = set(self.packs)
        for each in self.seen.values():
            bytes = sum(self.sizes[number] for number in each.values if number in packed)
            if not each.again and each.why and bytes:
                key = f"{each.name}: {each.why}"
                found[key] = found.get(key, 0) + bytes
        return found
