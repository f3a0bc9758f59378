"""Every family on the same problem: how many forwards each needs for how much memory.

Memory is counted in states, a kept tape as ``tape`` of them; the working state and tape are not
counted, nor is the disk. A family that would take long to plan for is left out where it would, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, sqrt
from typing import Any

from ..chain import Hierarchical, Mixed, Online, Periodic, Revolve, Schedule, Tier
from ..chain.validate import amount, whole
from .words import say_number

_WORST = 10  # forwards a step, from which on the curves begin
_MIXED = 1000  # states of memory up to which tapes of another size than a state are planned for
_ONLINE = 10**7  # steps times slots
_HIERARCHICAL = 2 * 10**5  # steps
_DENSE = 2 * 10**4  # steps up to which curves have points between those of the table


@dataclass(frozen=True)
class Curve:
    """One family: for each amount of memory its schedule, or ``None`` where it has none or was left out."""

    name: str
    colour: str
    schedules: tuple[Schedule | None, ...]

    @cached_property
    def forwards(self) -> tuple[float | None, ...]:
        """All forwards of each schedule, with the transfers as the forwards that would take as long."""
        return tuple(None if schedule is None else forwards_of(schedule) for schedule in self.schedules)


@dataclass(frozen=True)
class Comparison:
    """The curves of all families over the same amounts of memory, in states; ``rows`` are those of the table."""

    steps: int
    memory: tuple[int, ...]
    rows: tuple[int, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """The numbers, ready to be written as JSON."""
        curves = [{"name": curve.name, "forwards": list(curve.forwards)} for curve in self.curves]
        return {
            "kind": "comparison",
            "steps": self.steps,
            "memory": list(self.memory),
            "rows": list(self.rows),
            "curves": curves,
            "notes": list(self.notes),
        }


def compare(
    steps: int, tape: float = 1.0, disk: Tier | None = None, forward: float = 1.0, backward: float | None = None
) -> Comparison:
    """Compare all families on ``steps`` steps whose tapes take as much as ``tape`` states.

    ``disk`` is the second tier of ``Hierarchical``: unbounded if not given, and a transfer takes as
    long as five steps. ``forward`` and ``backward`` are the times of a step and of a turn, in the
    unit of the disk's.

    >>> compare(100).curves[0].schedules[-1].cost.forwards
    199
    """
    steps, tape = whole(steps, "steps", 2), amount(tape, "tape", positive=True)
    forward = amount(forward, "forward", positive=True)
    turn = forward if backward is None else backward
    slow = Tier(None, 5 * forward, 5 * forward) if disk is None else disk
    memory, rows = _amounts(steps)
    hierarchical = f"Hierarchical, {_say_disk(slow, forward)}"
    curves = [
        _Family("Revolve", "slate", lambda m: Revolve(steps, m)),
        _Family("Online", "green", lambda m: Online(m).ended(steps), lambda m: steps * m <= _ONLINE),
        _Family("Periodic, tapes counted", "pink", lambda m: periodic(steps, m, tape)),
        _Family("Mixed, tape/state 1", "blue", lambda m: Mixed(steps, m)),
    ]
    if tape != 1:

        def quick(m: int) -> bool:
            return m <= _MIXED or m >= (steps - 1) * tape

        other = _Family(f"Mixed, tape/state {tape:.4g}", "sky", lambda m: Mixed(steps, m, tape), quick)
        curves.append(other)
    curves.append(
        _Family(
            hierarchical,
            "orange",
            lambda m: Hierarchical(steps, (Tier(m), slow), forward, turn),
            lambda m: steps <= _HIERARCHICAL,
        )
    )
    return Comparison(
        steps=steps,
        memory=memory,
        rows=rows,
        curves=tuple(family.curve(memory) for family in curves),
        notes=tuple(note for family in curves for note in family.notes(memory)),
    )


def forwards_of(schedule: Schedule) -> float:
    """The forwards of a schedule and, where it has transfers that take time, those that take as long."""
    cost, model = schedule.cost, schedule.model
    if len(model.rooms) == 1 or not isinstance(model.forward, int | float):
        return cost.forwards
    compute = model.time(cost.advances, [0] * len(model.rooms), [0] * len(model.rooms))
    return cost.forwards + (cost.time - compute) / model.forward


def periodic(steps: int, memory: float, tape: float) -> Periodic | None:
    """The fewest segments whose snapshots and tapes fit, and so the fewest forwards; ``None`` if no number does."""
    room = (memory + 1) ** 2 - 4 * steps * tape
    if room < 0:
        return None
    low, high = (memory + 1 - sqrt(room)) / 2, (memory + 1 + sqrt(room)) / 2
    for segments in range(max(1, floor(low) - 1), min(steps, ceil(high) + 1) + 1):
        if segments - 1 + ceil(steps / segments) * tape <= memory:
            return Periodic(steps, segments)
    return None


@dataclass(frozen=True)
class _Family:
    name: str
    colour: str
    make: Callable[[int], Schedule | None]
    quick: Callable[[int], bool] = lambda memory: True

    def curve(self, memory: Sequence[int]) -> Curve:
        return Curve(self.name, self.colour, tuple(self.make(m) if self.quick(m) else None for m in memory))

    def notes(self, memory: Sequence[int]) -> Iterator[str]:
        """What was left out, and why."""
        left_out = [m for m in memory if not self.quick(m)]
        if len(left_out) == len(memory):
            yield f"{self.name} is left out: planning it for so many steps takes long"
        elif left_out:
            yield f"{self.name} is left out from {left_out[0]:,} states on: planning it takes long"


def _say_disk(disk: Tier, forward: float) -> str:
    room = "unbounded" if disk.slots is None else f"{disk.slots:,} slots on"
    write, read = say_number(disk.write / forward), say_number(disk.read / forward)
    transfers = f"transfer = {write}" if write == read else f"write = {write} and read = {read}"
    return f"{room} disk, {transfers} forwards"


def _amounts(steps: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Amounts of memory for the curves, and those of them for the table: 1, 2, 5, 10 … and the last."""
    least = next(m for m in range(1, steps + 1) if Revolve(steps, m).cost.forwards <= _WORST * steps)
    most = max(least, steps - 1)
    round_numbers = (factor * 10**power for power in range(len(str(most))) for factor in (1, 2, 5))
    rows = sorted({least, most, *(m for m in round_numbers if least < m < most)})
    between = {round(least * (most / least) ** (k / 30)) for k in range(31)} if steps <= _DENSE else set()
    return tuple(sorted({*rows, *between})), tuple(rows)
