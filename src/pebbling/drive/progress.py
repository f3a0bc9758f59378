"""A bar with an exact time to go: the plan knows the work that is left."""

from __future__ import annotations

import sys
from math import inf
from typing import Any

from ..errors import PebblingError
from ..units import format_seconds
from .run import Run

_REFRESH = 0.1


class Progress:
    """Shows how far a run is; shows nothing where standard error is not a terminal."""

    def __init__(self, advances: int | None, reversals: int | None) -> None:
        """``advances`` and ``reversals`` are what the plan will evaluate in all; ``None`` while unknown."""
        self._advances, self._reversals = advances, reversals
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            self._start()

    def _start(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError:
            raise PebblingError("progress=True needs rich: pip install 'pebbling[progress]'") from None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %  {task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self._bar.add_task("forward", total=1.0, left="")
        self._bar.start()

    def show(self, run: Run, now: float) -> float:
        """Draw the bar; the time of the next drawing."""
        done, left = self.estimate(run)
        if self._bar is not None:
            what = "forward" if run.final is None else "backward"
            self._bar.update(
                self._task,
                completed=done,
                description=what,
                left="length unknown" if left == inf else f"{format_seconds(left)} left",
            )
            self._bar.refresh()
        return now + _REFRESH

    def known(self, advances: int, reversals: int) -> None:
        """Say what the plan will evaluate, once a loop of unknown length has ended."""
        self._advances, self._reversals = advances, reversals

    def estimate(self, run: Run) -> tuple[float, float]:
        """The share of the work that is done, and the seconds that the rest will take."""
        if self._advances is None or self._reversals is None:
            return 0.0, inf
        report = run.report
        forward = report.seconds["advance"] / max(report.advances, 1)
        backward = report.seconds["reverse"] / report.reversals if report.reversals else 2 * forward
        store = report.seconds["store"] / max(report.advances + report.reversals, 1)
        left_forward, left_back = self._advances - report.advances, self._reversals - report.reversals
        left = left_forward * (forward + store) + left_back * (backward + store)
        spent = sum(report.seconds.values())
        return spent / (spent + left) if spent + left else 0.0, max(left, 0.0)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
