"""What loops of NumPy code and loops on tensors do alike with a schedule.

``sweep_unknown`` is the sweep of a loop of unknown length: with ``Online(2)`` over 5 steps it keeps the states before
steps 0 and 1, puts that before step 3 in place of the latter, and goes back as ``chain/gaps.py`` says.

``parted`` takes the cotangents of a loop's outputs apart. For a state of two leaves, one output of the last step, and
steps that emit one value and two:

    parted([a, b, last, e0, e1, e2], 2, 1, [1, 2])      [a, b], [last], [[e0], [e1, e2]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..chain import Action, Online
from .program import Leaves, Program


class Sweeping(Protocol):
    """A loop in its sweep."""

    program: Program
    state: Leaves
    flag: Any
    at: int

    def lay(self, slot: int, tier: int) -> None:
        """Keep the state that the sweep is at."""

    def drop(self, slot: int, tier: int) -> None:
        """Let go of a snapshot."""

    def forward(self, stop: int) -> None:
        """Take steps."""


def sweep_unknown(loop: Sweeping, online: Online) -> Iterator[Action]:
    """Run a loop of unknown length to its end, with snapshots; the actions of the way back."""
    placement = online.placement()
    kept = next(placement, None)
    while not loop.flag and loop.program.goes_on(loop.state, loop.at):
        if kept is not None and kept.step == loop.at:
            if kept.evicted is not None:
                loop.drop(kept.slot, 0)
            loop.lay(kept.slot, 0)
            kept = next(placement, None)
        loop.forward(loop.at + 1)
    ended = online.ended(loop.at)
    return ended.since(ended.end_forward + 1)


def parted(
    seeds: list[Any], width: int, outs: int, emitted: Sequence[int]
) -> tuple[list[Any], list[Any], list[list[Any]]]:
    """Cotangents of the final state, of the last step's outputs and of each step's; ``seeds`` comes back empty."""
    parts, at = [], width + outs
    for count in emitted:
        parts.append(seeds[at : at + count])
        at += count
    found = seeds[:width], seeds[width : width + outs], parts
    seeds.clear()
    return found
