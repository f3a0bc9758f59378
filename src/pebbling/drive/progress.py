"""A bar with an exact time to go: the plan knows the work that is left."""

from __future__ import annotations

import sys
from math import inf, isinf, isnan, nan
from typing import Any, Self

from ..chain import Advance, EndForward, Record, Schedule
from ..chain.online import Ended
from ..chain.spans import Each, Item, Span, Sub, inner_first
from ..errors import PebblingError
from ..units import format_seconds
from .run import Run
from .verify import items

_REFRESH = 0.1


class Progress:
    """Shows how far a run is; shows nothing where standard error is not a terminal."""

    def __init__(self, plan: Schedule | None) -> None:
        """``plan`` is ``None`` while the length of a loop is unknown."""
        self._advances = self._reversals = 0
        self._known = False
        if plan is not None:
            self.follow(plan)
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            self._start()

    def follow(self, plan: Schedule) -> None:
        """Say what the run does in all."""
        self._advances = plan.cost.advances if isinstance(plan, Ended) else evaluations(plan)
        self._reversals, self._known = plan.steps, True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError:
            raise PebblingError("progress=True needs rich: pip install 'pebbling[progress]'") from None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self._bar.add_task("forward", total=1.0 if self._known else None, left="")
        self._bar.start()

    def show(self, run: Run, now: float) -> float:
        """Draw the bar; the time of the next drawing."""
        done, left = self.estimate(run)
        if self._bar is not None:
            what = "forward" if run.final is None else "backward"
            total = None if isinf(left) else 1.0
            self._bar.update(
                self._task, completed=done, total=total, description=what, left=self.words(run, done, left)
            )
            self._bar.refresh()
        return now + _REFRESH

    def words(self, run: Run, done: float, left: float) -> str:
        """What stands beside the bar: how far, how long still, how fast."""
        report = run.report
        spent = sum(report.seconds.values())
        speed = f", {(report.advances + report.reversals) / spent:,.3g} steps/s" if spent > 0 else ""
        if isinf(left):
            return f"step {report.advances:,}, length unknown{speed}"
        if isnan(left):
            return f"{done:4.0%}"
        return f"{done:4.0%}  {format_seconds(left)} left{speed}"

    def estimate(self, run: Run) -> tuple[float, float]:
        """The share of the work that is done, and the seconds that the rest will take; nan before a step was timed."""
        if not self._known:
            return 0.0, inf
        report = run.report
        if not report.advances and not report.reversals:
            return 0.0, nan
        forward = report.seconds["advance"] / max(report.advances, 1)
        backward = report.seconds["reverse"] / report.reversals if report.reversals else 2 * forward
        store = report.seconds["store"] / max(report.advances + report.reversals, 1)
        # Snapshots that were lost and computed again come on top of the plan.
        left_forward = max(self._advances - report.advances, 0)
        left = left_forward * (forward + store) + (self._reversals - report.reversals) * (backward + store)
        spent = sum(report.seconds.values())
        return spent / (spent + left) if left else 1.0, left


def evaluations(plan: Schedule) -> int:
    """How often a plan calls for a step forward, that for the final state included, and those inside reversals not."""
    counts: dict[Span, int] = {}
    for span, parts in inner_first(plan, plan.root, counts):
        counts[span] = sum(counts[part.span] if isinstance(part, Sub) else _steps(part) for part in parts)
    at = 0
    for base, item in items(plan):
        if isinstance(item, EndForward):
            break
        at = base + item.stop if isinstance(item, Advance | Each) else at + _steps(item)
    return counts[plan.root] + plan.steps - at


def _steps(item: Item) -> int:
    """How many steps forward one item takes."""
    if isinstance(item, Each):
        return item.stop - item.start if item.kind is Record else 0
    return item.stop - item.start if isinstance(item, Advance) else int(isinstance(item, Record))
