"""What a run did: counted and timed, beside what was planned."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

from ..chain import Online, Schedule
from ..chain.binomial import advances
from ..units import format_bytes, format_seconds


@dataclass
class Report:
    """Counts, bytes and times of one run.

    ``forwards`` counts every evaluation of a step, one inside each reversal included, and
    ``minimum`` is the fewest that any plan with the same slots needs. ``peak`` and ``planned`` are
    bytes held by the run in snapshots, by tier.
    """

    schedule: str
    steps: int = 0
    forwards: int = 0
    minimum: int = 0
    advances: int = 0
    reversals: int = 0
    stores: int = 0
    restores: int = 0
    recovered: int = 0
    compared: int = 0
    inverted: int = 0
    """States computed backwards, by ``inverse``."""
    drifted: int = 0
    """How often they had not the bits of the first sweep, and were replayed in place."""
    drift: float = 0.0
    """How far they were from snapshots, relative to the largest entry, where ``drift=`` allows that."""
    resumed_at: int | None = None
    state_bytes: int = 0
    written: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    lossy: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("advance", "reverse", "store"), 0.0))
    left: list[str] = field(default_factory=list)
    """What could not be cleaned up when the run was over; its result is whole all the same."""
    events: list[tuple[str, int, float, float]] = field(default_factory=list, repr=False)

    @property
    def factor(self) -> float:
        """Evaluations of a step for each step."""
        return self.forwards / self.steps if self.steps else 0.0

    def __str__(self) -> str:
        optimal = self.minimum / self.steps if self.steps else 0.0
        rows = [
            ("schedule", self.schedule),
            ("forwards a step", f"{self.factor:.3f}  (least possible {optimal:.3f})"),
            ("snapshots", f"{self.stores:,} stored, {self.restores:,} restored"),
        ]
        for tier in self.peak:
            planned = format_bytes(self.planned[tier]) if tier in self.planned else "not planned"
            rows.append((f"peak, {tier}", f"{format_bytes(self.peak[tier])}  (planned {planned})"))
        rows += [(f"time, {name}", format_seconds(seconds)) for name, seconds in self.seconds.items()]
        if self.compared:
            rows.append(("verified", f"{self.compared:,} replayed states equal to the first sweep, bit for bit"))
        if self.inverted:
            off = f"; {self.drifted:,} had other bits, and steps were replayed in place" if self.drifted else ""
            rows.append(("inverse", f"{self.inverted:,} states computed backwards{off}"))
        if self.recovered:
            rows.append(("recovered", f"{self.recovered:,} damaged snapshots, computed again"))
        if self.resumed_at is not None:
            rows.append(("resumed", f"at action {self.resumed_at:,}"))
        if self.lossy and self.inverted:
            rows.append(("inexact", f"states by inverse were off by up to {self.drift:.3g}: the gradient is not exact"))
        elif self.lossy:
            rows.append(("lossy", "snapshots were compressed with loss, as asked: the gradient is not exact"))
        rows += [("left behind", what) for what in self.left]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)

    def json(self) -> str:
        """The report as JSON, without the timeline."""
        content = {key: value for key, value in asdict(self).items() if key != "events"}
        return json.dumps({"kind": "report", **content, "factor": self.factor}, indent=2)

    def timeline(self, path: str | PathLike[str]) -> None:
        """Write the timeline for Perfetto or chrome://tracing; the run must have been made with ``trace=True``."""
        if not self.events:
            raise ValueError("this run kept no timeline: ask for it with trace=True")
        names = list(dict.fromkeys(name for name, *_ in self.events))
        events: list[dict[str, Any]] = [
            {
                "name": f"{name} {step}",
                "cat": name,
                "ph": "X",
                "ts": start * 1e6,
                "dur": duration * 1e6,
                "pid": 0,
                "tid": names.index(name),
            }
            for name, step, start, duration in self.events
        ]
        labels = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": i, "args": {"name": name}}
            for i, name in enumerate(names)
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": labels + events, "displayTimeUnit": "ms"}, file)


def compare_with_plan(report: Report, plan: Schedule | Online, tiers: list[str]) -> None:
    """Put what was planned, by tier, and what is possible at best, beside what was done."""
    peaks: Sequence[float]
    if isinstance(plan, Online):
        slots, peaks, on_top = plan.slots, [min(plan.slots, report.steps)], 0
    else:
        # Tapes are kept in memory whatever the store; not every model counts them.
        on_top = plan.cost.tapes if not plan.model.tape or "memory" not in tiers else 0
        slots, peaks = _most_states(plan), plan.cost.peaks
    slots = min(max(slots, 1), max(report.steps, 1))
    report.minimum = report.steps + advances(report.steps, slots) + min(report.steps, 1)
    if isinstance(plan, Schedule) and isinstance(plan.model.state, tuple):
        return  # its sizes are in a unit of the user's
    for tier, peak in zip(tiers, peaks):
        report.planned[tier] = int(peak * report.state_bytes)
    if on_top:
        report.planned["memory"] = report.planned.get("memory", 0) + on_top * report.state_bytes


def tell(left: list[str]) -> None:
    """Warn of what could not be cleaned up; never so that the result is lost, even where warnings are errors."""
    if left:
        with suppress(Warning):
            warnings.warn(
                f"the run is over and its result is whole, but some of it could not be cleaned up: {'; '.join(left)}",
                stacklevel=3,
            )


def _most_states(plan: Schedule) -> int:
    """How many states a plan may hold at once: as many as its rooms hold, and kept tapes where they don't count."""
    model = plan.model
    given = [*_all(model.state), *_all(model.tape)]
    least = min((size for size in given if size), default=1)
    rooms = sum(plan.steps if room.capacity is None else int(room.capacity / least) for room in model.rooms)
    return rooms + (0 if model.tape else plan.cost.tapes)


def _all(size: float | tuple[float, ...]) -> tuple[float, ...]:
    return size if isinstance(size, tuple) else (size,)


def brief(schedule: Schedule | Online) -> str:
    """A schedule in one line."""
    text = repr(schedule)
    return text if len(text) <= 200 else f"{type(schedule).__name__} of {getattr(schedule, 'steps', '?')} steps"
