"""Laying out a schedule: exact where every action is kept, true in time, peaks and extents where it is coarse."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import Advance, Free, Mixed, Periodic, Record, Restore, Reverse, Revolve, Snapshot, Turn
from pebbling.chain import Schedule, Staged
from pebbling.chain.online import Online
from pebbling.show.axis import Axis
from pebbling.show.clock import durations, first_sweep
from pebbling.show.panel import thinned
from pebbling.show.scale import scale_of
from pebbling.show.trace import Trace
from pebbling.show.walk import trace
from strategies import schedules

finenesses = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.6])


def laid_out(schedule: Schedule, share: float = 0.0) -> Trace:
    """The trace of a schedule; spans below ``share`` of the whole are not looked into."""
    scale = scale_of(schedule)
    total = durations(schedule, scale.clock)[schedule.root]
    return trace(schedule, scale.clock, scale.counter, share * total)


def counted(schedule: Schedule, kind: type) -> int:
    return sum(isinstance(action, kind) for action in schedule)


@given(schedules, finenesses)
@settings(deadline=None)
def test_the_time_is_that_of_the_cost_however_coarse(schedule: Schedule, share: float) -> None:
    assert laid_out(schedule, share).time == pytest.approx(schedule.cost.time)


@given(schedules, finenesses)
@settings(deadline=None)
def test_the_highest_amount_held_is_the_peak_of_the_cost_however_coarse(schedule: Schedule, share: float) -> None:
    held = laid_out(schedule, share).held
    assert [max(amount for _, amount in corners) for corners in held] == pytest.approx(list(schedule.cost.peaks))


@given(schedules, finenesses)
@settings(deadline=None)
def test_nothing_is_held_in_the_end_and_time_never_goes_back(schedule: Schedule, share: float) -> None:
    traced = laid_out(schedule, share)
    for corners in traced.held:
        assert corners[-1] == (pytest.approx(traced.time), pytest.approx(0, abs=1e-9))
        assert all(one[0] <= two[0] + 1e-9 for one, two in pairwise(corners))


@given(schedules)
@settings(deadline=None)
def test_every_action_is_in_an_exact_trace(schedule: Schedule) -> None:
    traced = laid_out(schedule)
    marks = [type(mark.action) for mark in traced.marks]
    for kind in (Snapshot, Restore, Turn, Record, Reverse):
        assert marks.count(kind) == counted(schedule, kind)
    assert sum(map(len, traced.sweeps)) == counted(schedule, Advance)
    assert len(traced.bars) == counted(schedule, Free) == schedule.cost.stores
    assert len(traced.tapes) == counted(schedule, Record)
    assert traced.blurs == []


@given(schedules)
@settings(deadline=None)
def test_marks_come_in_the_order_of_the_schedule(schedule: Schedule) -> None:
    shown = (Snapshot, Restore, Turn, Record, Reverse)
    assert [mark.action for mark in laid_out(schedule).marks] == [one for one in schedule if isinstance(one, shown)]


@given(schedules)
@settings(deadline=None)
def test_bars_fill_the_area_below_the_curve_where_only_states_are_kept(schedule: Schedule) -> None:
    traced, model = laid_out(schedule), schedule.model
    if model.tape or isinstance(model.state, tuple):
        return
    for tier, corners in enumerate(traced.held):
        area = sum((two[0] - one[0]) * one[1] for one, two in pairwise(corners))
        assert sum(bar.stop - bar.start for bar in traced.bars if bar.tier == tier) == pytest.approx(area)


@pytest.mark.parametrize(
    "schedule",
    [Revolve(400, 6), Revolve(300, 60), Online(7).ended(300), Mixed(300, 9, 2), Staged(240, 12, 4, 2, 3.0, 3.0)],
    ids=str,
)
@pytest.mark.parametrize("share", [0.01, 0.03])
def test_a_coarse_bar_is_an_exact_one_to_within_the_fineness(schedule: Schedule, share: float) -> None:
    exact = {(bar.step, bar.tier, round(bar.start, 6)): bar.stop for bar in laid_out(schedule).bars}
    coarse = laid_out(schedule, share)
    near = 2 * share * coarse.time
    assert len(coarse.bars) > 5
    for bar in coarse.bars:
        ends = [
            stop
            for (step, tier, start), stop in exact.items()
            if (step, tier) == (bar.step, bar.tier) and abs(start - bar.start) <= near
        ]
        assert min(abs(stop - bar.stop) for stop in ends) <= near


@given(schedules, finenesses)
@settings(deadline=None)
def test_every_step_is_reversed_once_in_blurs_tapes_and_turns(schedule: Schedule, share: float) -> None:
    traced = laid_out(schedule, share)
    times = [0] * schedule.steps
    for blur in traced.blurs:
        for step in range(blur.first, blur.last):
            times[step] += 1
    for mark in traced.marks:
        if isinstance(mark.action, Turn):
            times[mark.action.step] += 1
    blurred = {(blur.start, blur.last) for blur in traced.blurs}
    for taped in traced.tapes:
        run = taped.reversed
        if (run.start, run.first) not in blurred:
            for step in range(run.last, run.first):
                times[step] += 1
    assert times == [1] * schedule.steps


@given(schedules)
@settings(deadline=None)
def test_the_first_sweep_takes_what_comes_before_its_end(schedule: Schedule) -> None:
    scale, time = scale_of(schedule), 0.0
    for action in schedule:
        if type(action).__name__ == "EndForward":
            break
        time += scale.clock.takes(action, 0)
    assert first_sweep(schedule, scale.clock) == pytest.approx(time)


def test_nested_spans_are_taken_together() -> None:
    """A plan with a slot for each of many segments is as deep as it has segments."""
    traced = laid_out(Periodic(20_000, 4_000), 0.002)
    assert len(traced.bars) + len(traced.blurs) < 3_000
    assert laid_out(Periodic(20_000, 4_000)).time == traced.time


def test_thinning_a_curve_keeps_its_peak_and_never_lowers_it() -> None:
    corners = laid_out(Revolve(3_000, 9)).held[0]
    time = Axis(0, corners[-1][0], 0, 500)
    thin = thinned(corners, time)
    assert len(thin) == 1_000 < len(corners)
    assert max(amount for _, amount in thin) == 9
    by_pixel = [amount for _, amount in thin[::2]]
    step = time.high / 500
    assert all(by_pixel[min(int(moment / step), 499)] >= amount for moment, amount in corners)
    assert thinned(corners[:400], time) == corners[:400]
