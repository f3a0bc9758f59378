"""The comparison: its numbers are those of the schedules, and what is left out is said."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pebbling import Hierarchical, Mixed, Online, Periodic, Revolve, Tier, check
from pebbling.show import compare, table, tradeoff
from pebbling.show.compare import forwards_of, periodic


@pytest.mark.parametrize(("steps", "tape"), [(2, 1), (20, 1), (60, 3), (40, 0.5)])
def test_each_value_is_the_cost_of_its_schedule(steps: int, tape: float) -> None:
    comparison = compare(steps, tape)
    curves = {curve.name.partition(",")[0]: curve for curve in comparison.curves}
    assert set(curves) == {"Revolve", "Online", "Periodic", "Mixed", "Hierarchical"}
    for index, memory in enumerate(comparison.memory):
        assert curves["Revolve"].forwards[index] == Revolve(steps, memory).cost.forwards
        assert curves["Online"].forwards[index] == Online(memory).ended(steps).cost.forwards
        mixed = [curve.forwards[index] for curve in comparison.curves if curve.name.startswith("Mixed")]
        assert mixed == [Mixed(steps, memory, ratio).cost.forwards for ratio in dict.fromkeys((1, tape))]
        hierarchical = Hierarchical(steps, [Tier(memory), Tier(None, 5, 5)])
        assert curves["Hierarchical"].forwards[index] == pytest.approx(hierarchical.cost.time)
    assert comparison.notes == ()


def test_the_table_has_the_forwards_a_step() -> None:
    comparison = compare(60, 2)
    lines = table(comparison).splitlines()
    rows = [line.split() for line in lines if line.split()[0].isdigit()]
    assert [int(row[0]) for row in rows] == list(comparison.rows)
    for row in rows:
        memory = int(row[0])
        expected = [
            Revolve(60, memory).cost.forwards,
            Online(memory).ended(60).cost.forwards,
            None if (found := periodic(60, memory, 2)) is None else found.cost.forwards,
            Mixed(60, memory).cost.forwards,
            Mixed(60, memory, 2).cost.forwards,
            Hierarchical(60, [Tier(memory), Tier(None, 5, 5)]).cost.time,
        ]
        assert row[1:] == ["-" if one is None else f"{one / 60:.3f}" for one in expected]


@pytest.mark.parametrize("tape", [0.5, 1, 2, 7])
def test_periodic_has_the_fewest_segments_that_fit(tape: float) -> None:
    costs = {segments: Periodic(60, segments).cost for segments in range(1, 61)}
    for memory in range(1, 200, 3):
        fitting = [segments for segments, cost in costs.items() if cost.peak + cost.tapes * tape <= memory]
        found = periodic(60, memory, tape)
        assert (found.slots if found else None) == (fitting[0] if fitting else None)
        if found:
            assert found.cost.forwards == min(costs[segments].forwards for segments in fitting)


def test_transfers_count_as_the_forwards_that_take_as_long() -> None:
    schedule = Hierarchical(60, [Tier(2), Tier(2, write=8.0, read=4.0)], forward=2.0, backward=5.0)
    disk = [sum(type(one).__name__ == kind and one.tier == 1 for one in schedule) for kind in ("Snapshot", "Restore")]
    assert forwards_of(schedule) == check(schedule).forwards + 4 * disk[0] + 2 * disk[1]
    assert forwards_of(Revolve(60, 4)) == Revolve(60, 4).cost.forwards


def test_more_memory_never_costs_more() -> None:
    for curve in compare(120, 2).curves:
        values = [value for value in curve.forwards if value is not None]
        assert values == sorted(values, reverse=True)


def test_what_takes_long_to_plan_is_left_out_and_named() -> None:
    comparison = compare(10**6)
    left_out = {curve.name for curve in comparison.curves if None in curve.forwards and "Periodic" not in curve.name}
    assert left_out == {note.partition(" is left out")[0] for note in comparison.notes}
    assert any("Online" in name for name in left_out)
    assert "is left out" in table(comparison)


def test_the_chart_has_a_curve_and_a_name_for_each_family() -> None:
    comparison = compare(60, 2, Tier(50, 3, 2))
    chart = tradeoff(comparison, budget=20)
    root = ElementTree.fromstring(chart)
    lines = [one for one in root.iter() if "line" in one.get("class", "").split()]
    rings = [one for one in root.iter() if "dot" in one.get("class", "").split()]
    assert len(lines) == 2 * 5  # each curve, and its sign in the legend
    assert len(rings) > 5
    written = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {curve.name for curve in comparison.curves} <= set(written)
    assert "Hierarchical, 50 slots on disk, write = 3 and read = 2 forwards" in written
    assert "budget: 20 states" in written


@pytest.mark.parametrize(("steps", "tape"), [(1, 1), (10, 0), (10, -1), (2.5, 1)])
def test_nonsense_is_refused(steps: float, tape: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        compare(steps, tape)
