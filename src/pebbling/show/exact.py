"""A pebble picture in which every action has its sign: for schedules of some hundred actions."""

from __future__ import annotations

from ..chain.actions import Record, Restore, Reverse, Snapshot, Turn
from . import signs
from .axis import Axis
from .clock import Clock
from .svg import Page, segment
from .trace import Mark, Trace


def draw_exact(page: Page, trace: Trace, clock: Clock, time: Axis, step: Axis) -> None:
    """Draw all that happens, what is held behind what is done."""
    height = abs(step(1) - step(0))
    for taped in trace.tapes:
        signs.tape(page, time(taped.recorded.start), time(taped.reversed.stop), step(taped.recorded.first + 0.5))
    for bar in trace.bars:
        signs.snapshot(page, time(bar.start), time(bar.stop), step(bar.step), bar.tier)
    _draw_jumps(page, trace, time, step)
    for line in (line for sweep in trace.sweeps for line in sweep):
        tip = f"advance from step {line.first} to step {line.last}"
        signs.advance(page, time(line.start), step(line.first), time(line.stop), step(line.last), tip)
    size = min(3.4, max(1.6, 0.3 * height))
    for mark in sorted(trace.marks, key=lambda mark: isinstance(mark.action, Snapshot | Restore)):
        _draw_mark(page, mark, clock, time, step, size)


def _draw_mark(page: Page, mark: Mark, clock: Clock, time: Axis, step: Axis, size: float) -> None:
    start, stop = time(mark.start), time(mark.stop)
    match mark.action:
        case Snapshot(at, slot, tier):
            signs.store(page, start, step(at), tier, max(size, 2.4), f"store step {at} in slot {slot}")
        case Restore(at, slot, tier):
            signs.restore(page, stop, step(at), tier, max(size, 2.6), f"restore step {at} from slot {slot}")
        case Turn(at):
            peak = time(mark.start + clock.takes(Record(at), 0))
            left = min(start, stop - 2.0)
            signs.turn(page, left, step(at), max(peak, left), step(at + 1), stop, f"turn step {at}")
        case Record(at):
            signs.record(page, start, step(at), stop, step(at + 1), f"record step {at}")
        case Reverse(at):
            signs.reverse(page, (start + stop) / 2, step(at + 0.5), size, f"reverse step {at} from its tape")


def _draw_jumps(page: Page, trace: Trace, time: Axis, step: Axis) -> None:
    """From where a run stood to the state that it restores."""
    at, jumps = int(step.high), []
    for mark in trace.marks:
        if isinstance(mark.action, Turn | Reverse):
            at = mark.action.step
        elif isinstance(mark.action, Restore) and mark.action.step != at:
            jumps.append(segment(time(mark.start), step(at), time(mark.stop), step(mark.action.step)))
    page.path("s-soft jump", jumps)
