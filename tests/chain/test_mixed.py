"""States and tapes in one memory, against brute force and known values."""

from __future__ import annotations

from fractions import Fraction
from time import perf_counter

import brute
import pytest

import pebbling.chain.mixed as mixed
from pebbling import BudgetError
from pebbling.chain import Mixed, Revolve, Turn, check
from pebbling.chain.mixed_hull import hull

KNOWN = [
    (10, 3, 1, 19),
    (100, 5, 1, 352),
    (100, 10, 1, 237),
    (1000, 10, 1, 3921),
    (10**4, 100, 1, 24_900),
    (10, 3, 2, 24),
    (50, 10, 2, 113),
    (100, 10, 2, 270),
    (10, 3, 3, 25),
    (50, 10, 3, 124),
    (10, 3, 5, 25),
    (100, 10, 5, 300),
]
# forwards a step for n = 1000 with a tape as large as a state, as measured for the mixed schedule elsewhere
PUBLISHED = [(5, 6.828), (10, 3.921), (20, 2.823), (40, 2.142), (60, 1.958), (80, 1.932)]
RATIOS = [Fraction(1), Fraction(2), Fraction(3), Fraction(5), Fraction(1, 2), Fraction(1, 4), Fraction(3, 2)]


@pytest.mark.parametrize(("steps", "memory", "tape", "forwards"), KNOWN)
def test_known_values(steps, memory, tape, forwards):
    schedule = Mixed(steps, memory, tape)
    assert schedule.cost.forwards == forwards
    assert check(schedule) == schedule.cost


@pytest.mark.parametrize(("slots", "factor"), PUBLISHED)
def test_published_factors(slots, factor):
    assert Mixed(1000, slots).cost.forwards == round(1000 * factor)


@pytest.mark.parametrize("tape", RATIOS)
def test_forwards_and_writes_equal_brute_force(tape):
    for memory in (1, 2, 3, 5):
        for steps in range(1, 40):
            counted = check(Mixed(steps, memory, float(tape)))
            assert (counted.forwards, counted.stores) == brute.mixed(steps, Fraction(memory), tape)


@pytest.mark.parametrize("tape", [1, 2, 3, 4, 5, 7, 11])
def test_the_hull_rounded_up_is_the_optimum_for_whole_ratios(tape):
    for memory in range(1, 9):
        for steps in range(1, 60):
            assert hull(memory, 1, tape).rounded(steps) == brute.mixed(steps, Fraction(memory), Fraction(tape))[0]


@pytest.mark.parametrize("tape", RATIOS)
def test_the_hull_never_exceeds_the_optimum(tape):
    unit = tape.denominator
    for memory in range(1, 9):
        for steps in range(1, 50):
            best = brute.mixed(steps, Fraction(memory), tape)[0]
            assert hull(memory * unit, unit, int(tape * unit)).rounded(steps) <= best


@pytest.mark.parametrize("tape", [float(ratio) for ratio in RATIOS])
def test_plans_by_the_hull_are_valid_and_as_good_as_they_say(tape, monkeypatch):
    exact = {(n, m): Mixed(n, m, tape).cost.forwards for n in range(2, 60, 3) for m in (1, 2, 3, 6)}
    monkeypatch.setattr(mixed, "EXACT", 0)
    for (steps, memory), best in exact.items():
        schedule = Mixed(steps, memory, tape)
        counted = check(schedule)
        assert counted == schedule.cost
        assert schedule.bound <= best <= counted.forwards
        assert schedule.gap == pytest.approx(counted.forwards / schedule.bound - 1)
        if tape == int(tape):
            assert counted.forwards == best
            assert schedule.gap == 0


def test_plans_from_the_exact_programme_have_no_gap():
    for tape in (0.5, 1.5, 1):
        assert Mixed(60, 5, tape).gap == 0


def test_tapes_that_never_fit_leave_revolve_to_the_letter():
    for steps in (1, 2, 17, 60):
        assert list(Mixed(steps, 4, tape=5)) == list(Revolve(steps, 4))


def test_with_room_for_everything_nothing_runs_twice():
    cost = Mixed(50, 49).cost
    assert (cost.forwards, cost.advances, cost.stores) == (50, 0, 0)


def test_a_million_steps_are_planned_in_milliseconds():
    best = min(_seconds(lambda: Mixed(10**6, 100).cost) for _ in range(3))
    assert best < 0.1
    assert Mixed(10**6, 100).cost.forwards == hull(100, 1, 1).rounded(10**6)


def test_many_slots_do_not_recurse():
    assert check(Mixed(3000, 400, 2)).forwards == hull(400, 1, 2).rounded(3000)


def test_a_long_plan_is_walked_from_anywhere():
    schedule = Mixed(10**6, 50, 3)
    position = schedule.seek(123_456)
    assert next(schedule.since(position)).step == 123_456
    assert isinstance(next(schedule.since(schedule.seek(999_999))), Turn)


@pytest.mark.parametrize(("steps", "memory", "tape", "least"), [(5, 0, 1, 1), (5, 0.5, 1, 1), (3, 0.1, 0.25, 0.5)])
def test_too_little_memory_names_the_least(steps, memory, tape, least):
    with pytest.raises(BudgetError) as error:
        Mixed(steps, memory, tape)
    assert error.value.minimum == least
    assert check(Mixed(steps, least, tape)).forwards


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, -1), "memory must be a zero or positive, finite number, not -1"),
        ((10, float("nan")), "memory must be"),
        ((10, 3, 0), "tape must be a positive, finite number, not 0"),
        ((10, 3, float("inf")), "tape must be"),
        ((-3, 3), "steps must be"),
    ],
)
def test_bad_arguments_say_what_is_accepted(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixed(*arguments)


def _seconds(work):
    begun = perf_counter()
    work()
    return perf_counter() - begun
