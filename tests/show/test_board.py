"""The animated board: well-formed, true to the schedule, and bounded."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from pebbling import Hierarchical, Mixed, Revolve, Tier
from pebbling.chain import Schedule
from pebbling.show import board
from strategies import schedules

SVG = "{http://www.w3.org/2000/svg}"


def animations(picture: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    return [one for one in root.iter() if one.tag in (f"{SVG}animate", f"{SVG}animateTransform")]


@given(schedules)
@settings(max_examples=40, deadline=None)
def test_browsers_take_the_animations_of_any_schedule(schedule: Schedule) -> None:
    if len(list(schedule)) > 1000:
        return
    for one in animations(board(schedule)):
        times = [float(time) for time in one.get("keyTimes", "").split(";")]
        # What SVG asks of keyTimes: as many as values, from 0 to 1 where values are joined by lines, never back.
        assert len(times) == len(one.get("values", "").split(";"))
        assert times[0] == 0.0
        assert times[-1] == 1.0 or one.get("calcMode") == "discrete"
        assert all(first <= second for first, second in pairwise(times))


@pytest.mark.parametrize("schedule", [Revolve(20, 4), Mixed(20, 4), Hierarchical(20, [Tier(2), Tier(2, 2.0, 1.0)])])
def test_each_snapshot_has_a_disc_and_each_step_is_reversed_once(schedule: Schedule) -> None:
    root = ElementTree.fromstring(board(schedule))
    discs = [one for one in root.iter(f"{SVG}circle") if one.find(f"{SVG}animate") is not None]
    assert len(discs) == schedule.cost.stores + 1  # the working state moves too
    turned = [one.text for one in root.iter(f"{SVG}title")]
    assert sorted(turned) == sorted(f"step {step} is reversed" for step in range(20))


def test_what_is_too_long_is_refused_with_another_picture() -> None:
    with pytest.raises(ValueError, match=r"at most 1,000 actions.*pebbling\.show\.pebbles"):
        board(Revolve(1000, 10))
    with pytest.raises(ValueError, match="more than 0"):
        board(Revolve(10, 3), seconds=0)
