"""In which units a schedule is shown: its own, or the bytes and seconds of a real problem."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..chain.actions import Turn
from ..chain.schedule import Schedule
from ..chain.spans import Span, inner_first
from ..chain.tally import Counter
from ..units import format_bytes, format_seconds, parse_bytes, parse_seconds
from .clock import Clock
from .words import say_number


@dataclass(frozen=True)
class Scale:
    """The clock and the counter of a picture, and what one unit of memory is."""

    clock: Clock
    counter: Counter
    state: float | None
    """Bytes of one state; ``None`` where states are the unit."""
    working: float
    """What a run holds besides what its plan keeps, in the unit of the picture."""
    timed: bool

    def amount(self, units: float, tier: int) -> float:
        """What a tier holds, in the unit of the picture."""
        return units * (self.state or 1.0) + (0.0 if tier else self.working)

    def say_amount(self, amount: float) -> str:
        """Such an amount in words."""
        if self.state is not None:
            return format_bytes(amount)
        return f"{say_number(amount)} {'state' if amount == 1 else 'states'}"

    def say_time(self, time: float) -> str:
        """A time in words."""
        return format_seconds(time) if self.timed else f"{time:,.6g} forwards"


def scale_of(
    schedule: Schedule,
    state: float | str | None = None,
    tape: float | str | None = None,
    forward: float | str | None = None,
    backward: float | str | None = None,
    overlap: bool = False,
) -> Scale:
    """The scale of a picture, from sizes and times as ``pebbling.plan`` takes them."""
    if state is None and tape is not None:
        raise ValueError("tape in bytes says nothing without state: give both")
    if forward is None and backward is not None:
        raise ValueError("backward in seconds says nothing without forward: give both")
    model = schedule.model
    size = None if state is None else parse_bytes(state)
    taped = size if tape is None else parse_bytes(tape)
    working = 0.0
    if size is not None and taped is not None:
        if size == 0:
            raise ValueError(f"state must be at least one byte, not {state!r}")
        if not hasattr(schedule, "tape"):  # a family that counts tapes, or none, and knows no size of one
            model = replace(model, tape=taped / size)
        working = min(schedule.steps, 1) * (2 * size + (taped if turns(schedule) else 0))
    seconds = None if forward is None else parse_seconds(forward)
    turn = None
    if seconds is not None:
        turn = seconds + (2 * seconds if backward is None else parse_seconds(backward))
    return Scale(
        clock=Clock(model, seconds, turn, overlap),
        counter=Counter(schedule, model, schedule.closed),
        state=size,
        working=working,
        timed=seconds is not None,
    )


def turns(schedule: Schedule) -> bool:
    """Whether any step is taped and reversed at once, so that a run needs a working tape."""
    known: set[Span] = set()
    return any(type(item) is Turn for _, items in inner_first(schedule, schedule.root, known) for item in items)
