"""``memory=`` bounds the measured peak of a run, and is used as far as it goes."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest
import torch
from drive_problems import same, store_everything

from pebbling import BudgetError, Online, StoreAll, adjoint
from pebbling.drive.settle import time_transfer
from pebbling.drive.tracing import Traced
from pebbling.store import Disk, Memory, Mock


def simple(x, i):
    return 0.9 * x * (1 - x)


def simple_back(x, a, i):
    return 0.9 * (1 - 2 * x) * a


def runge_kutta(x, i):
    """Several temporaries, some of them held to the end."""

    def slope(u):
        return 0.5 * u * (1 - u) + 0.1 * np.roll(u, 1)

    one = slope(x)
    two = slope(x + 0.05 * one)
    three = slope(x + 0.05 * two)
    four = slope(x + 0.1 * three)
    return x + (one + 2 * two + 2 * three + four) / 60


def five_temporaries(x, a, i):
    one, two, three, four, five = (x * k for k in range(1, 6))
    return a * 0.5 + (one - two) * 1e-3 + (three - four) * 1e-3 + five * 1e-3


def of_trees(s, i):
    return {"u": simple(s["u"], i), "v": (s["v"][0] + 1, s["v"][1] * 0.9), "n": s["n"] + 1}


def of_trees_back(s, a, i):
    return {"u": simple_back(s["u"], a["u"], i), "v": (a["v"][0], a["v"][1] * 0.9)}


def array(nbytes):
    return np.random.default_rng(0).random(nbytes // 8)


def tree_of(nbytes):
    return {"u": array(nbytes // 2), "v": (array(800), array(nbytes // 2)), "n": 0}


PROBLEMS = {
    "simple": (array, simple, simple_back),
    "temporaries": (array, runge_kutta, simple_back),
    "temporaries on the way back": (array, simple, five_temporaries),
    "temporaries both ways": (array, runge_kutta, five_temporaries),
    "tree": (tree_of, of_trees, of_trees_back),
}


def seed_of(state):
    return {"u": state["u"], "v": state["v"]} if isinstance(state, dict) else state


def peak_of(call):
    """What a call allocates at its peak, the second time it is made."""
    call()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = call()
        return tracemalloc.get_traced_memory()[1] - before, result
    finally:
        tracemalloc.stop()


def smallest(call):
    with pytest.raises(BudgetError) as caught:
        call(1)
    assert str(caught.value.minimum) in str(caught.value)
    return caught.value.minimum


@pytest.mark.parametrize("nbytes", [10_000, 100_000, 1_000_000, 8_000_000])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_peak_stays_within_the_budget(name, nbytes):
    make, step, back = PROBLEMS[name]
    state = make(nbytes)
    n = 40 if nbytes < 1_000_000 else 14

    def call(budget):
        return adjoint(step, back, state, n, seed_of(state), memory=budget)

    want = store_everything(step, back, state, range(n), seed_of(state))
    least = smallest(call)
    assert least < 32 * nbytes + 200_000
    evaluated = []
    for times in (0, 0.6, 1, 1.7, 2, 3, 5, 8, 13, 2.5 * n):
        budget = least + int(times * nbytes)
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert same((result.state, result.adjoint), want)
        evaluated.append(result.report.advances)
    assert evaluated == sorted(evaluated, reverse=True)
    assert evaluated[-1] == n
    assert result.report.schedule == repr(StoreAll(n))
    with pytest.raises(BudgetError):
        call(least - 20_000)


@pytest.mark.parametrize("nbytes", [80, 10_000, 1_000_000])
def test_the_peak_stays_within_the_budget_in_loops_of_unknown_length(nbytes):
    state = array(nbytes)
    n = 700 if nbytes < 1_000_000 else 40

    def call(budget):
        return adjoint(simple, simple_back, state, lambda x, i: i < n, state, memory=budget)

    least = smallest(call)
    for times in (0, 1, 3, 30):
        budget = least + int(times * (nbytes + 1000))
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert result.report.steps == n
    assert adjoint(simple, simple_back, state, lambda x, i: False, state, memory=1).report.steps == 0


@pytest.mark.parametrize(("n", "nbytes"), [(3000, 80), (3000, 8000), (1000, 8000)])
def test_bookkeeping_counts(n, nbytes):
    """Many small states: what the run takes to keep track of them is within the budget too."""
    state = array(nbytes)

    def call(budget):
        return adjoint(simple, simple_back, state, n, state, memory=budget)

    least = smallest(call)
    for slots in (0, 10, 100, 600, 5000):
        budget = least + slots * (nbytes + 1500)
        peak, _ = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget


def test_verify_all_counts():
    state = array(8000)

    def call(budget):
        return adjoint(simple, simple_back, state, 1500, state, memory=budget, verify="all")

    least = smallest(call)
    assert peak_of(lambda: call(least))[0] <= least


def test_nothing_is_left_allocated_after_a_run():
    state = array(1_000_000)

    def call():
        return adjoint(simple, simple_back, state, 20, state, memory="30MB")

    call()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < result.state.nbytes + result.adjoint.nbytes + 50_000


def hungry(states):
    """A reversal that allocates so many states at once."""

    def back(x, a, i):
        held = [x * k for k in range(states)]
        return simple_back(x, a, i) + 0 * held[0]

    return back


@pytest.mark.parametrize("states", [12, 20, 45])
@pytest.mark.parametrize("n", [12, 60])
def test_a_reversal_that_takes_more_than_was_set_aside(states, n):
    state = array(100_000)

    def call(budget):
        return adjoint(simple, hungry(states), state, n, state, memory=budget)

    least = smallest(call)
    with pytest.raises(BudgetError, match="a reversal allocates .* leaves no room") as caught:
        call(least)
    enough = caught.value.minimum
    assert least < enough < least + 8 * (states + n) * 100_000
    assert state.flags.writeable
    want = store_everything(simple, hungry(states), state, range(n), state)
    for more in (0, 1, 50_000, 333_333, 2_000_000, 7_777_777, 30_000_000):
        budget = enough + more
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert same((result.state, result.adjoint), want)
    with pytest.raises(BudgetError):
        call(enough - 60_000)


def test_an_adjoint_that_is_larger_than_the_state():
    state = array(100_000)
    seed = {"x": state, "parameters": array(1_000_000)}

    def back(x, a, i):
        return {"x": simple_back(x, a["x"], i), "parameters": a["parameters"] + 1}

    for given in (seed, lambda x: {"x": x, "parameters": array(1_000_000)}):

        def call(budget, given=given):
            return adjoint(simple, back, state, 30, given, memory=budget)

        budget = smallest(call)
        if callable(given):
            with pytest.raises(BudgetError, match="a reversal") as caught:
                call(budget)
            budget = caught.value.minimum
        assert peak_of(lambda: call(budget))[0] <= budget  # noqa: B023


def test_the_trial_is_the_first_step_of_the_run():
    calls = []

    def counted(x, i):
        calls.append(i)
        return simple(x, i)

    state = array(1000)
    result = adjoint(counted, simple_back, state, 30, state, memory="10MB")
    assert calls == list(range(30))
    calls.clear()
    assert same(adjoint(counted, simple_back, state, 30, state, memory=120_000).adjoint, result.adjoint)
    assert calls[:30] == list(range(30))
    with Disk_like() as store:
        calls.clear()
        adjoint(counted, simple_back, state, 30, state, memory=120_000, store=store)
        assert calls[:29] == list(range(29))
        assert store.keys() == []
    asked = []
    adjoint(counted, simple_back, state, lambda x, i: asked.append(i) or i < 9, state, memory="10MB")
    assert asked == list(range(10))


def Disk_like():
    return Mock(write_delay=1e-4, read_delay=1e-4)


def test_an_empty_chain_takes_any_budget_and_no_nonsense():
    state = array(1000)
    assert adjoint(simple, simple_back, state, 0, state, memory=1).report.steps == 0
    for nonsense in ("12 parsecs", -1, float("nan"), True):
        with pytest.raises(ValueError, match="size"):
            adjoint(simple, simple_back, state, 0, state, memory=nonsense)


def test_memory_that_can_not_be_measured_is_refused():
    state = torch.zeros(10)
    with pytest.raises(ValueError, match="memory= bounds what NumPy and Python allocate, and the state holds a torch"):
        adjoint(simple, simple_back, state, 5, state, memory="1MB")


def test_at_most_one_budget():
    with pytest.raises(ValueError, match="at most one of slots, memory and schedule, not slots and memory"):
        adjoint(simple, simple_back, array(80), 5, array(80), slots=2, memory="1MB")
    with pytest.raises(ValueError, match="not memory and schedule"):
        adjoint(simple, simple_back, array(80), 5, array(80), memory="1MB", schedule=StoreAll(5))
    with pytest.raises(ValueError, match="the schedule is for 4 steps, the chain has 5"):
        adjoint(simple, simple_back, array(80), 5, array(80), schedule=StoreAll(4))
    with pytest.raises(ValueError, match="steps as a predicate"):
        adjoint(simple, simple_back, array(80), 5, array(80), schedule=Online(4))
    with pytest.raises(ValueError, match="takes an Online schedule"):
        adjoint(simple, simple_back, array(80), lambda x, i: False, array(80), schedule=StoreAll(4))


def slow(seconds):
    """A step that takes so long."""
    from time import perf_counter

    def step(x, i):
        end = perf_counter() + seconds
        while perf_counter() < end:
            pass
        return simple(x, i)

    return step


@pytest.mark.parametrize(("seconds", "delay", "uses_store"), [(2e-3, 1e-4, True), (1e-5, 0.2, False)])
def test_a_store_is_used_where_it_is_worth_its_time(seconds, delay, uses_store):
    """Snapshots go to a store that is fast compared with the steps, and stay away from one that is not."""
    state, n = array(100_000), 60
    with Mock(write_delay=delay, read_delay=delay) as store:
        budget = smallest(lambda budget: adjoint(simple, simple_back, state, n, state, memory=budget, store=store))
        budget += 500_000
        store.log.clear()
        result = adjoint(slow(seconds), simple_back, state, n, state, memory=budget, store=store)
        in_memory = adjoint(simple, simple_back, state, n, state, memory=budget)
    assert same(result.adjoint, in_memory.adjoint)
    puts = store.count("put") - 1
    assert (puts > 0) == uses_store
    assert (result.report.advances < in_memory.report.advances) == uses_store


def test_the_peak_stays_within_the_budget_with_a_disk(tmp_path):
    state, n = array(1_000_000), 30
    with Disk(tmp_path / "d") as store:

        def call(budget):
            return adjoint(slow(5e-3), simple_back, state, n, state, memory=budget, store=store)

        least = smallest(call)
        for times in (0, 1, 4):
            budget = least + times * 1_000_000
            peak, result = peak_of(lambda budget=budget: call(budget))
            assert peak <= budget
            assert "disk" in result.report.peak
            assert store.keys() == []


def test_a_large_enough_budget_leaves_the_store_alone():
    state = array(1000)
    with Mock() as store:
        result = adjoint(simple, simple_back, state, 30, state, memory="10MB", store=store)
        assert result.report.schedule == repr(StoreAll(30))
        assert store.count("put") <= 1
        assert store.keys() == []


def test_the_time_of_a_transfer_is_measured_and_leaves_nothing():
    with Mock(write_delay=0.02, read_delay=0.01) as store:
        write, read = time_transfer(store, array(80))
        assert 0.02 <= write < 0.2
        assert 0.01 <= read < 0.1
        assert store.keys() == []
    with Memory() as store:
        store.put("probe", 1)
        time_transfer(store, array(80))
        assert store.get("probe") == 1


def test_tracing_does_not_disturb_who_else_traces():
    tracemalloc.start()
    try:
        held = np.ones(500_000)
        del held
        with Traced() as outer:
            first = np.ones(200_000)
            with Traced() as inner:
                np.ones(50_000).sum()
            second = np.ones(10)
        assert 400_000 <= inner.peak < 410_000
        assert 2_000_000 <= outer.peak < 2_020_000
        assert 1_600_000 <= outer.held < 1_610_000
        assert tracemalloc.is_tracing()
        assert tracemalloc.get_traced_memory()[1] >= 4_000_000
        assert first.size > second.size
    finally:
        tracemalloc.stop()
    with Traced():
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()
