"""Every schedule, store and edge gives the final state and the adjoint of storing everything, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from drive_problems import (
    STORES,
    advance,
    every_store,
    reverse,
    same,
    schedules_of,
    staged_of,
    start,
    store_everything,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pebbling import Online, Revolve, StoreAll, adjoint
from pebbling.chain.binomial import advances

SEED = np.linspace(0.5, 1.5, 7)
EDGES = [(0, 1), (0, 3), (1, 1), (1, 4), (2, 1), (2, 5), (7, 1), (9, 12), (10, 3), (23, 4), (40, 1)]


def expected(n, seed=SEED):
    return store_everything(advance, reverse, start(), range(n), seed)


def assert_exact(result, n, seed=SEED):
    final, gradient = expected(n, seed)
    assert same(result.state, final)
    assert same(result.adjoint, gradient)
    assert result.report.steps == result.report.reversals == n


@pytest.mark.parametrize(("n", "c"), EDGES)
def test_every_schedule_in_memory(n, c):
    for schedule in schedules_of(n, c).values():
        assert_exact(adjoint(advance, reverse, start(), n, SEED, schedule=schedule), n)
    assert_exact(adjoint(advance, reverse, start(), n, SEED, slots=c), n)
    assert_exact(adjoint(advance, reverse, start(), n, SEED), n)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(("n", "c"), [(0, 2), (1, 1), (2, 5), (9, 2), (23, 4)])
def test_every_schedule_in_every_store(kind, n, c, tmp_path):
    with every_store(kind, tmp_path) as store:
        for schedule in (schedules_of(n, c) | staged_of(n, c)).values():
            assert_exact(adjoint(advance, reverse, start(), n, SEED, schedule=schedule, store=store), n)
            assert store.keys() == []
        assert_exact(adjoint(advance, reverse, start(), lambda x, i: i < n, SEED, slots=c, store=store), n)
        assert store.keys() == []
        store.put("still", "open")
        assert store.get("still") == "open"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 50), st.integers(1, 12), st.integers(0, 9), st.sampled_from(["last", "all", False]))
def test_any_length_and_slots(n, c, which, verify):
    schedule = list(schedules_of(n, c).values())[which % 9]
    assert_exact(adjoint(advance, reverse, start(), n, SEED, schedule=schedule, verify=verify), n)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.sampled_from(["last", "all", False]))
def test_loops_of_unknown_length(n, c, verify):
    asked = []

    def more(x, i):
        asked.append(i)
        return i < n

    result = adjoint(advance, reverse, start(), more, SEED, slots=c, verify=verify)
    assert_exact(result, n)
    assert asked == list(range(n + 1))
    assert result.report.advances == Online(c).ended(n).cost.advances


@settings(max_examples=40, deadline=None)
@given(st.integers(-30, 30), st.integers(-40, 40), st.integers(-4, 4).filter(bool), st.integers(1, 5))
def test_the_index_of_a_step_is_that_of_the_range(first, stop, by, c):
    indices = range(first, stop, by)
    want = store_everything(advance, reverse, start(), indices, SEED)
    for schedule in (None, *schedules_of(len(indices), c).values()):
        result = adjoint(advance, reverse, start(), indices, SEED, schedule=schedule)
        assert same((result.state, result.adjoint), want)


def test_a_predicate_sees_the_state():
    def more(x, i):
        return i < 5 or bool(x.min() > 0.11)

    n, x = 0, start()
    while more(x, n):
        x, n = advance(x, n), n + 1
    assert n > 5
    assert_exact(adjoint(advance, reverse, start(), more, SEED, slots=3), n)


def test_the_seed_may_be_a_function_of_the_final_state():
    def seed(x):
        return 2 * x - 1

    for schedule in schedules_of(12, 3).values():
        assert_exact(adjoint(advance, reverse, start(), 12, seed, schedule=schedule), 12, seed)


def test_a_seed_that_is_the_final_state_is_not_written_into():
    def in_place(x, a, i):
        a *= 1 - 2 * x
        return a

    for schedule in schedules_of(12, 3).values():
        result = adjoint(lambda x, i: x * (1 - x), in_place, start(), 12, lambda x: x, schedule=schedule)
        final, gradient = store_everything(lambda x, i: x * (1 - x), in_place, start(), range(12), lambda x: x)
        assert same(result.state, final)
        assert same(result.adjoint, gradient)


def test_a_seed_given_as_a_value_stays_as_it_was():
    def in_place(x, a, i):
        a *= 1 - 2 * x
        return a

    seed = np.ones(7)
    adjoint(lambda x, i: x * (1 - x), in_place, start(), 5, seed, slots=2)
    assert same(seed, np.ones(7))


@pytest.mark.parametrize(("n", "c"), [(1, 1), (2, 1), (10, 3), (50, 7), (100, 5), (30, 40)])
def test_no_step_runs_more_often_than_the_plan_says(n, c):
    calls = []

    def counted(x, i):
        calls.append(i)
        return advance(x, i)

    adjoint(counted, reverse, start(), n, SEED, slots=c)
    assert len(calls) == advances(n, c) + 1
    calls.clear()
    adjoint(counted, reverse, start(), n, SEED, schedule=StoreAll(n))
    assert calls == list(range(n))


def test_runs_inside_runs():
    """The step of one run is a run itself, and so is its reversal."""

    def outer_advance(x, i):
        return adjoint(advance, reverse, x, 6, SEED, slots=2).state

    def outer_reverse(x, a, i):
        return adjoint(advance, reverse, x, 6, a, slots=2).adjoint

    result = adjoint(outer_advance, outer_reverse, start(), 5, SEED, slots=2)
    indices = [i for _ in range(5) for i in range(6)]
    assert same((result.state, result.adjoint), store_everything(advance, reverse, start(), indices, SEED))


def test_a_store_is_used_by_one_run_at_a_time(tmp_path):
    with every_store("Memory", tmp_path) as store:

        def step(x, i):
            return adjoint(advance, reverse, x, 3, SEED, slots=2, store=store).state

        with pytest.raises(ValueError, match="in use by another run"):
            adjoint(step, reverse, start(), 4, SEED, slots=2, store=store)
        assert_exact(adjoint(advance, reverse, start(), 6, SEED, slots=2, store=store), 6)


def test_other_contents_of_a_store_are_left_alone(tmp_path):
    with every_store("Disk", tmp_path) as store:
        store.put("step0", "mine")
        store.put(3, "mine too")
        assert_exact(adjoint(advance, reverse, start(), 9, SEED, schedule=Revolve(9, 3), store=store), 9)
        assert {key: store.get(key) for key in store.keys()} == {"step0": "mine", 3: "mine too"}  # noqa: SIM118
