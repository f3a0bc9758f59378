"""A plan as JSON comes back as the same plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from pebbling import Revolve, plan
from pebbling.chain import Schedule
from pebbling.drive import Report
from pebbling.show import Sheet, read_report, read_sheet
from pebbling.show.named import in_numbers
from strategies import schedules

PROBLEM = in_numbers(
    {"steps": 300, "state": "4GB", "tape": "8GB", "forward": "0.5s", "backward": "1s", "memory": "64GB"}
)


@given(schedules)
@settings(deadline=None)
def test_any_schedule_comes_back_equal(schedule: Schedule) -> None:
    sheet = Sheet(schedule, {"steps": schedule.steps})
    again = read_sheet(json.loads(json.dumps(sheet.json())))
    assert again == sheet
    assert again.text() == sheet.text()


def test_a_plan_comes_back_with_all_its_numbers() -> None:
    found = plan(**PROBLEM)
    sheet = Sheet(found.schedule, PROBLEM, found)
    content = json.loads(json.dumps(sheet.json()))
    assert read_sheet(content) == sheet
    assert read_sheet(content).text() == sheet.text()
    assert content["peak"] == found.peak
    assert content["forwards"] == found.forwards == found.schedule.cost.forwards
    assert [content[name] for name in ("time", "bound", "gap", "overhead")] == [
        found.time,
        found.bound,
        found.gap,
        found.overhead,
    ]


def test_the_text_says_what_the_plan_says() -> None:
    found = plan(**PROBLEM)
    mine, its = Sheet(found.schedule, PROBLEM, found).text().splitlines(), str(found).splitlines()
    assert set(its[1:]) <= set(mine)  # all but the name of the schedule, which is in words here


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": {"family": "Magic", "steps": 3}}, "no family of schedules 'Magic'"),
        ({"schedule": {"family": "Revolve"}}, "not a plan"),
        ({"schedule": {"family": "Revolve", "steps": -1, "slots": 2}}, "steps must be a whole number"),
        ({"schedule": None}, "not a plan"),
        ({"problem": 3}, "not a plan"),
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, object], message: str) -> None:
    content = Sheet(Revolve(20, 4), {"steps": 20}).json() | change
    with pytest.raises(ValueError, match=message):
        read_sheet(content)


def test_a_report_comes_back_as_text() -> None:
    report = Report("Revolve(20, 4)", steps=20, forwards=59, minimum=59, stores=10, peak={"memory": 640})
    assert str(read_report(json.loads(report.json()))) == str(report)
    with pytest.raises(ValueError, match="not the report"):
        read_report({"kind": "report", "colour": "red"})
