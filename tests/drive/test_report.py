"""What a run reports: counts beside the plan and the minimum, bytes by tier, times, JSON, and a timeline."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from drive_problems import advance, reverse, schedules_of, staged_of, start

from pebbling import adjoint
from pebbling.chain import Mixed, Online, Periodic, Revolve, Snapshot, Staged, StoreAll
from pebbling.drive.progress import evaluations
from pebbling.store import Compressed, Disk, Memory

SEED = np.ones(7)
N = 24


def report_of(**options):
    return adjoint(advance, reverse, start(), N, SEED, **options).report


@pytest.mark.parametrize("name", [*schedules_of(N, 4), *staged_of(N, 4)])
def test_counts_are_those_of_the_plan(name):
    schedule = (schedules_of(N, 4) | staged_of(N, 4))[name]
    with Memory() as store:
        report = report_of(schedule=schedule, store=store if name in staged_of(N, 4) else None)
    cost = schedule.cost
    assert (report.steps, report.reversals, report.restores, report.stores) == (N, N, cost.restores, cost.stores)
    assert report.forwards == report.advances + N
    assert report.advances == evaluations(schedule)
    assert report.factor == report.forwards / N
    assert report.minimum <= report.forwards


@pytest.mark.parametrize("slots", [1, 2, 5, 24, 40])
def test_the_minimum_is_reached_by_plans_that_are_optimal(slots):
    report = report_of(slots=slots)
    assert report.forwards == report.minimum
    assert report_of(schedule=StoreAll(N)).minimum == 2 * N <= report.minimum


def test_the_minimum_of_a_loop_of_unknown_length():
    report = adjoint(advance, reverse, start(), lambda x, i: i < N, SEED, slots=4).report
    assert report.minimum == report_of(slots=4).minimum <= report.forwards
    assert report.schedule == repr(Online(4))


@pytest.mark.parametrize("schedule", [Revolve(N, 4), StoreAll(N), Mixed(N, 5), Periodic(N, 4)])
def test_the_peak_in_memory_is_the_planned_one(schedule):
    report = report_of(schedule=schedule)
    assert 0 < report.peak["memory"] <= report.planned["memory"] + 56
    assert report.state_bytes == 56


def test_bytes_by_tier(tmp_path):
    schedule = Staged(N, 4, 2)
    stores = [action for action in schedule if isinstance(action, Snapshot) and action.tier == 1]
    with Disk(tmp_path / "d") as store:
        report = report_of(schedule=schedule, store=store)
    assert report.written["disk"] == 56 * len(stores)
    assert report.read["disk"] >= 56 * (len(stores) - 1)
    assert report.peak["disk"] == report.planned["disk"] == 56 * len(stores)
    assert report.peak["memory"] <= report.planned["memory"] + 56


def test_times_add_up():
    def slow(x, i):
        time.sleep(0.002)
        return advance(x, i)

    def slower(x, a, i):
        time.sleep(0.004)
        return reverse(x, a, i)

    for options in ({}, {"trace": True}, {"progress": True}):
        begun = time.perf_counter()
        report = adjoint(slow, slower, start(), N, SEED, slots=4, **options).report
        whole = time.perf_counter() - begun
        assert report.seconds["advance"] >= 0.002 * report.advances
        assert report.seconds["reverse"] >= 0.004 * N
        assert sum(report.seconds.values()) <= whole


def test_it_prints():
    report = report_of(slots=4)
    text = str(report)
    assert f"forwards a step  {report.factor:.3f}  (least possible {report.factor:.3f})" in text
    assert f"{report.stores} stored, {report.restores} restored" in text
    assert "peak, memory     224 B  (planned 224 B)" in text
    assert "verified         1 replayed states equal" in text
    assert "lossy" not in text
    with Compressed(Memory(), lossy_bits=40) as store:
        assert "the gradient is not exact" in str(report_of(slots=4, store=store, verify=False))


def test_json():
    report = report_of(slots=4)
    found = json.loads(report.json())
    assert found["kind"] == "report"
    assert found["forwards"] == report.forwards
    assert found["factor"] == report.factor
    assert found["peak"] == report.peak
    assert "events" not in found


def test_the_timeline_has_every_action(tmp_path):
    schedule = Revolve(N, 4)
    report = report_of(schedule=schedule, trace=True)
    report.timeline(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["cat"] for event in spans] == [type(action).__name__.lower() for action in schedule]
    assert [event["name"].split()[1] for event in spans[:2]] == ["0", "0"]
    assert all(event["dur"] >= 0 for event in spans)
    assert [event["ts"] for event in spans] == sorted(event["ts"] for event in spans)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {event["cat"] for event in spans}


def test_no_timeline_without_asking(tmp_path):
    with pytest.raises(ValueError, match="trace=True"):
        report_of(slots=4).timeline(tmp_path / "run.json")
