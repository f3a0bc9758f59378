"""The pebble picture: well-formed, complete where it is small, small where the schedule is long."""

from __future__ import annotations

import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from pebbling import Hierarchical, Mixed, Online, Periodic, Revolve, StoreAll, Tier, plan
from pebbling.chain import Schedule, Staged
from pebbling.show import Sheet, pebbles
from pebbling.show.named import in_numbers
from strategies import schedules

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ElementTree.Element:
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    return root


def signs(picture: str, kind: str) -> list[ElementTree.Element]:
    """The elements of a class, without those of the legend, which have no tip."""
    found = [one for one in parsed(picture).iter() if kind in one.get("class", "").split()]
    return [one for one in found if one.find(f"{SVG}title") is not None]


def texts(picture: str) -> str:
    return "\n".join(one.text or "" for one in parsed(picture).iter(f"{SVG}text"))


@pytest.mark.parametrize(
    "schedule",
    [
        Revolve(20, 4),
        Mixed(20, 4, 2),
        Periodic(20, 4),
        StoreAll(20),
        Online(4).ended(20),
        Staged(20, 3, 2, 1, 2.0, 1.0),
        Hierarchical(20, [Tier(2), Tier(2, 2.0, 1.0)]),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_each_action_of_a_small_schedule_has_its_sign(schedule: Schedule) -> None:
    picture, cost, actions = pebbles(schedule), schedule.cost, list(schedule)
    assert len(signs(picture, "turn")) + len(signs(picture, "reverse")) == 20
    assert len(signs(picture, "store")) == cost.stores
    assert len(signs(picture, "restore")) == cost.restores
    for kind in ("advance", "record", "turn", "reverse"):
        assert len(signs(picture, kind)) == sum(type(action).__name__.lower() == kind for action in actions)


@given(schedules)
@settings(max_examples=60, deadline=None)
def test_every_picture_is_well_formed_and_says_what_it_takes(schedule: Schedule) -> None:
    picture = pebbles(schedule)
    assert f"{schedule.cost.forwards:,} forwards" in texts(picture)
    assert re.search(r"(?<![a-z])(nan|inf)(?![a-z])", picture) is None


LONG = [
    Revolve(10**6, 100),
    Revolve(10**6, 3),
    Mixed(10**6, 100, 2.5),
    Periodic(10**6, 2_000),
    StoreAll(10**6),
    Staged(10**6, 1_000, 10, 2.125, 2.0, 2.0),
    Hierarchical(10**6, [Tier(100), Tier(1_000, 5.0, 5.0)]),
    Online(5).ended(10**5),
    Revolve(10**8, 50),
]


@pytest.mark.parametrize("schedule", LONG, ids=str)
def test_a_million_steps_draw_in_seconds_into_a_small_file(schedule: Schedule) -> None:
    cost = schedule.cost  # planning is not drawing
    begun = time.process_time()
    picture = pebbles(schedule)
    assert time.process_time() - begun < 5
    assert len(picture.encode()) < 500_000
    assert f"{cost.forwards:,} forwards" in texts(picture)
    assert f"peak {cost.peak:,.0f} state" in texts(picture)


def test_the_curve_of_a_picture_reaches_the_height_of_the_peak() -> None:
    """Read off the picture: the ticks give the scale, the curve its highest point."""
    for schedule in (Revolve(20, 4), Revolve(10**6, 100)):
        root = parsed(pebbles(schedule))
        ticks = [one for one in root.iter(f"{SVG}text") if one.get("text-anchor") == "end" and one.text]
        numbers = [(float(one.get("y", "")) - 4, float(one.text)) for one in ticks if one.text and one.text.isdigit()]
        (curve,) = [one for one in root.iter(f"{SVG}path") if "curve" in one.get("class", "").split()]
        heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", curve.get("d", ""))]
        lowest = max(index for index, (_, value) in enumerate(numbers) if value == 0)  # of the panel, which is last
        (zero, _), (tick, value) = numbers[lowest : lowest + 2]
        assert (zero - min(heights)) / (zero - tick) * value == pytest.approx(schedule.cost.peak, rel=0.02)


@pytest.mark.parametrize(
    "problem",
    [
        {"memory": None},
        {"memory": "64GB"},
        {"memory": "64GB", "disk": "400GB", "disk_write": "2GB/s", "disk_read": "3GB/s"},
        {"memory": "20GB", "disk": "4TB", "disk_write": "20GB/s", "disk_read": "30GB/s"},
    ],
    ids=["everything", "memory", "disk", "fast disk"],
)
def test_a_picture_in_bytes_shows_the_peak_of_the_plan(problem: dict[str, str]) -> None:
    whole = in_numbers({"steps": 500, "state": "4GB", "tape": "8GB", "forward": "0.5s", "backward": "1s", **problem})
    found = plan(**whole)
    bare = Sheet(found.schedule, whole)  # counts by itself what the planner says
    assert bare.peak == pytest.approx(found.peak)
    written = Sheet(found.schedule, whole, found).text().splitlines()
    peaks = [line.split("  ")[-1].strip() for line in written if line.startswith("peak")]
    assert len(peaks) == len(found.peak)
    assert all(f"peak {peak}" in texts(bare.picture()) for peak in peaks)


def test_times_in_seconds_stretch_the_axis() -> None:
    picture = pebbles(Revolve(20, 4), forward="30s", backward="30s")
    assert "39.5 min" in texts(picture)  # 59 forwards and 20 reversals of half a minute
    assert "time, in minutes" in texts(picture)


def test_a_picture_is_written_where_it_is_asked_to(tmp_path: Path) -> None:
    picture = pebbles(Revolve(20, 4), tmp_path / "r.svg")
    assert (tmp_path / "r.svg").read_text(encoding="utf-8") == picture


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "picture.png"}, r"written as SVG: name the file picture\.svg"),
        ({"path": "no/such/folder/p.svg"}, "no directory"),
        ({"tape": "1GB"}, "tape in bytes says nothing without state"),
        ({"backward": "1s"}, "backward in seconds says nothing without forward"),
        ({"state": 0}, "at least one byte"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pebbles(Revolve(20, 4), **arguments)
