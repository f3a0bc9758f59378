"""A bar that knows the work left, from the plan; and none where nobody looks."""

from __future__ import annotations

import io
import sys
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from drive_problems import advance, reverse, schedules_of, staged_of, start
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import PebblingError, adjoint
from pebbling.chain import Online, Revolve
from pebbling.drive.progress import Progress, evaluations
from pebbling.drive.report import Report
from pebbling.store import Memory

SEED = np.ones(7)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 40), st.integers(1, 8))
def test_the_work_of_a_plan_is_known_exactly(n, c):
    for name, schedule in (schedules_of(n, c) | staged_of(n, c)).items():
        with Memory() as store:
            used = store if name in staged_of(n, c) else None
            report = adjoint(advance, reverse, start(), n, SEED, schedule=schedule, store=used).report
        assert evaluations(schedule) == report.advances
    report = adjoint(advance, reverse, start(), lambda x, i: i < n, SEED, slots=c).report
    assert Online(c).ended(n).cost.advances == report.advances


def test_the_time_left_follows_from_the_work_left():
    schedule = Revolve(30, 4)
    whole = evaluations(schedule)
    report = Report("")
    report.advances, report.reversals = 40, 10
    report.seconds.update(advance=40 * 0.5, reverse=10 * 2.0, store=50 * 0.1)
    done, left = Progress(schedule).estimate(SimpleNamespace(report=report))
    assert left == pytest.approx((whole - 40) * 0.6 + 20 * 2.1)
    assert done == pytest.approx(45 / (45 + left))
    report.advances, report.reversals = whole, 30
    assert Progress(schedule).estimate(SimpleNamespace(report=report)) == (1.0, 0.0)
    assert Progress(None).estimate(SimpleNamespace(report=report)) == (0.0, inf)


def test_nothing_is_said_of_the_time_left_before_a_step_was_timed():
    """The first look comes after the first snapshot: no step has run, and its time is not known to be 0."""
    report, bar = Report(""), Progress(Revolve(1000, 10))
    report.seconds.update(advance=1e-6, store=1e-6)
    run = SimpleNamespace(report=report)
    assert bar.words(run, *bar.estimate(run)) == "  0%"
    report.advances = 2
    report.seconds["advance"] = 1.0
    assert "left, 2 steps/s" in bar.words(run, *bar.estimate(run))
    unknown = Progress(None)
    assert unknown.words(run, *unknown.estimate(run)) == "step 2, length unknown, 2 steps/s"


def test_nothing_is_shown_where_there_is_no_terminal(capfd):
    adjoint(advance, reverse, start(), 9, SEED, slots=3, progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("steps", [40, lambda x, i: i < 40])
def test_a_bar_in_a_terminal(monkeypatch, steps):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr("pebbling.drive.progress._REFRESH", 0.0)
    adjoint(advance, reverse, start(), steps, SEED, slots=4, progress=True)
    text = shown.getvalue()
    assert "forward" in text
    assert "backward" in text
    assert " left" in text
    assert "100%" in text
    assert "steps/s" in text
    assert ("length unknown" in text) == callable(steps)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for module in ("rich.console", "rich.progress", "rich"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PebblingError, match=r"progress=True needs rich: pip install 'pebbling\[progress\]'"):
        adjoint(advance, reverse, start(), 9, SEED, slots=3, progress=True)
