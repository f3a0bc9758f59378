"""``memory=`` bounds the measured peak of a run, and is used as far as it goes."""

from __future__ import annotations

import gc
import re
import tempfile
import threading
import tracemalloc

import numpy as np
import pytest
import torch
from drive_problems import same, store_everything
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pebbling import BudgetError, Online, PebblingError, StoreAll, adjoint
from pebbling.drive.slow_tier import time_transfer
from pebbling.drive.tracing import TracedMemory
from pebbling.store import HDF5, Compressed, Disk, Memory, Mock


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
    """What a call allocates at its peak, and what it returns."""
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


@pytest.mark.parametrize("nbytes", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_peak_stays_within_the_budget(name, nbytes):
    make, step, back = PROBLEMS[name]
    state = make(nbytes)
    n = 20 if nbytes < 1_000_000 else 8

    def call(budget):
        return adjoint(step, back, state, n, seed_of(state), memory=budget)

    want = store_everything(step, back, state, range(n), seed_of(state))
    least = smallest(call)
    assert least < 32 * nbytes + 200_000
    evaluated = []
    for times in (0, 0.6, 2, 5, 8, 2 * n + 5):
        budget = least + int(times * nbytes)
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert same((result.state, result.adjoint), want)
        evaluated.append(result.report.advances)
    assert evaluated == sorted(evaluated, reverse=True)
    assert evaluated[-1] == n
    assert result.report.schedule == repr(StoreAll(n))
    gc.collect()  # Python's free lists, which the runs before have filled, would save what they hold
    with pytest.raises(BudgetError):
        call(least - 20_000)


def floats(nbytes):
    return [0.1 + 1e-3 * j for j in range(1 + nbytes // 1000)]


def of_floats(s, i):
    return [0.9 * x * (1 - x) for x in s]


def of_floats_back(s, a, i):
    return [0.9 * (1 - 2 * x) * b for x, b in zip(s, a)]


class Tally:
    """An object of which the library knows nothing."""

    def __init__(self):
        self.counts = {"steps": 0, "words": ["a", "b"]}


def carrying(nbytes):
    return {"u": array(nbytes), "rng": np.random.default_rng(3), "tally": Tally(), "t": 0.5}


def of_carrying(s, i):
    s["tally"].counts["steps"] += 1
    noise = 1e-6 * s["rng"].random(s["u"].size)
    return {"u": simple(s["u"], i) + noise, "rng": s["rng"], "tally": s["tally"], "t": 1.01 * s["t"]}


def of_carrying_back(s, a, i):
    assert s["tally"].counts["steps"] == i
    return simple_back(s["u"], a, i)


def many_leaves(nbytes):
    return {f"u{j}": array(nbytes // 30) for j in range(30)}


def of_many(s, i):
    return {name: simple(u, i) for name, u in s.items()}


def of_many_back(s, a, i):
    return {name: simple_back(u, a[name], i) for name, u in s.items()}


STATES = {
    "array": (array, simple, simple_back, lambda s: s),
    "floats": (floats, of_floats, of_floats_back, list),
    "carried objects": (carrying, of_carrying, of_carrying_back, lambda s: s["u"]),
    "many leaves": (many_leaves, of_many, of_many_back, dict),
}
STORES = {
    "Disk": lambda path: Disk(path + "/disk", pickle=True),
    "HDF5": lambda path: HDF5(path + "/file.h5", pickle=True),
    "Compressed": lambda path: Compressed(Disk(path + "/disk", pickle=True)),
    "Memory": lambda path: Memory(),
    "Compressed Memory": lambda path: Compressed(Memory()),
}
LENGTHS = ("known", "all verified", "unknown", "resumable")


@settings(max_examples=14, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(STATES)),
    st.sampled_from(LENGTHS),
    st.integers(1, 30),
    st.floats(1.5, 4.7),
    st.floats(0, 1),
    st.data(),
)
def test_any_state_and_any_budget(kind, length, n, magnitude, more, data):
    """From bytes to kilobytes, where most of what is allocated is Python's own objects."""
    make, step, back, seed = STATES[kind]
    state = make(int(10**magnitude))
    steps = (lambda x, i: i < n) if length == "unknown" else n
    options = {"verify": "all"} if length == "all verified" else {}

    def call(budget):
        with tempfile.TemporaryDirectory() as path:
            if length == "resumable":
                options["resume"] = path + "/run"
                if kind == "carried objects":  # The journal writes what the store may write.
                    options["store"] = Disk(path + "/disk", pickle=True)
            return adjoint(step, back, state, steps, seed(state), memory=budget, **options)

    least = smallest(call)
    want = adjoint(step, back, state, n, seed(state), schedule=StoreAll(n))
    for budget in (least, least + int(more * data.draw(st.integers(0, 40)) * (least / 8))):
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert same(result.adjoint, want.adjoint)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("carried objects", "Compressed", 2, 2.0)
@example("carried objects", "HDF5", 1, 2.0)
@given(st.sampled_from(sorted(STATES)), st.sampled_from(sorted(STORES)), st.integers(1, 30), st.floats(1.5, 5))
def test_any_state_and_any_store(kind, store, n, magnitude):
    make, step, back, seed = STATES[kind]
    state = make(int(10**magnitude))

    def call(budget):
        with tempfile.TemporaryDirectory() as path, STORES[store](path) as opened:
            return adjoint(step, back, state, n, seed(state), memory=budget, store=opened)

    least = smallest(call)
    want = adjoint(step, back, state, n, seed(state), schedule=StoreAll(n))
    for budget in (least, least + least // 5):
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert same(result.adjoint, want.adjoint)


@pytest.mark.parametrize("nbytes", [80, 10_000, 1_000_000])
def test_the_peak_stays_within_the_budget_in_loops_of_unknown_length(nbytes):
    state = array(nbytes)
    n = 300 if nbytes == 80 else 20

    def call(budget):
        return adjoint(simple, simple_back, state, lambda x, i: i < n, state, memory=budget)

    least = smallest(call)
    for times in (0, 1, 3, 30):
        budget = least + int(times * (nbytes + 1000))
        peak, result = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget
        assert result.report.steps == n
    assert adjoint(simple, simple_back, state, lambda x, i: False, state, memory=1).report.steps == 0


@pytest.mark.parametrize(("n", "nbytes"), [(3000, 80), (800, 8000)])
def test_bookkeeping_counts(n, nbytes):
    """Many small states: what the run takes to keep track of them is within the budget too."""
    state = array(nbytes)

    def call(budget):
        return adjoint(simple, simple_back, state, n, state, memory=budget)

    least = smallest(call)
    for slots in (30, 600, 5000):
        budget = least + slots * (nbytes + 1500)
        peak, _ = peak_of(lambda budget=budget: call(budget))
        assert peak <= budget


def test_verify_all_counts():
    state = array(8000)

    def call(budget):
        return adjoint(simple, simple_back, state, 300, state, memory=budget, verify="all")

    budget = smallest(call) + 50_000
    assert peak_of(lambda: call(budget))[0] <= budget


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
        print(end="")  # what has effects outside can't be tried before its turn
        held = [x * k for k in range(states)]
        return simple_back(x, a, i) + 0 * held[0]

    return back


@pytest.mark.parametrize(("states", "n"), [(12, 60), (20, 12), (45, 30)])
def test_a_reversal_that_takes_more_than_was_set_aside(states, n):
    state = array(100_000)

    def call(budget):
        return adjoint(simple, hungry(states), state, n, state, memory=budget)

    least = smallest(call)
    with pytest.raises(BudgetError, match=r"a reversal allocates .* leaves no room") as caught:
        call(least)
    enough = caught.value.minimum
    assert least < enough < least + 8 * (states + n) * 100_000
    assert state.flags.writeable
    want = store_everything(simple, hungry(states), state, range(n), state)
    for more in (0, 50_000, 2_000_000, 30_000_000):
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

    for chosen in (seed, lambda x: {"x": x, "parameters": array(1_000_000)}):

        def call(budget, chosen=chosen):
            return adjoint(simple, back, state, 30, chosen, memory=budget)

        budget = smallest(call)
        if callable(chosen):  # It makes random numbers, so that it can't be tried.
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
    state = array(50_000)
    with Mock(write_delay=1e-4, read_delay=1e-4) as store:
        calls.clear()
        budget = smallest(lambda memory: adjoint(simple, simple_back, state, 30, state, memory=memory, store=store))
        adjoint(counted, simple_back, state, 30, state, memory=budget, store=store)
        assert calls[:29] == list(range(29))
        assert store.keys() == []
    asked = []
    adjoint(counted, simple_back, state, lambda x, i: asked.append(i) or i < 9, state, memory="10MB")
    assert asked == list(range(10))


def test_an_empty_chain_takes_any_budget_and_no_nonsense():
    state = array(1000)
    assert adjoint(simple, simple_back, state, 0, state, memory=1).report.steps == 0
    for nonsense in ("12 parsecs", -1, float("nan"), True):
        with pytest.raises(ValueError, match="expected bytes"):
            adjoint(simple, simple_back, state, 0, state, memory=nonsense)


def test_what_grows_without_bound_is_refused_with_a_budget_in_bytes():
    def forever(x, i):
        raise AssertionError("ran")

    state = array(1000)
    with pytest.raises(ValueError, match="verify='all' remembers a digest of every state"):
        adjoint(simple, simple_back, state, forever, state, memory="1MB", verify="all")
    with pytest.raises(ValueError, match="trace=True keeps every action"):
        adjoint(simple, simple_back, state, 10, state, memory="1MB", trace=True)
    with Mock() as store, pytest.raises(ValueError, match="in memory or in a store, not in both"):
        adjoint(simple, simple_back, state, forever, state, memory="1MB", store=store)


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
    state, n = array(300_000), 30
    with Disk(tmp_path / "d") as store:

        def call(budget):
            return adjoint(slow(5e-3), simple_back, state, n, state, memory=budget, store=store)

        least = smallest(call)
        for times in (0, 1, 4):
            budget = least + times * 300_000
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
        transfer = time_transfer(store, array(80_000))
        assert transfer.write >= 0.02
        assert transfer.read >= 0.01
        assert 2 * 80_000 <= transfer.peak < 2 * 80_000 + 20_000
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
        with TracedMemory() as outer:
            first = np.ones(200_000)
            with TracedMemory() as inner:
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
    with TracedMemory():
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize("nbytes", [8_000, 80_000, 800_000])
@pytest.mark.parametrize("room", [10, 20, 50, 100])
def test_a_budget_is_used_to_the_last_state(nbytes, room):
    """Not a whole state of the budget is left, but for Python's own objects and a sixtieth for other reversals."""
    state = array(nbytes)
    budget = room * nbytes + 30_000
    peak, _ = peak_of(lambda: adjoint(simple, simple_back, state, 500, state, memory=budget))
    assert budget - (1 + room / 64) * nbytes - 0.03 * budget - 10_000 < peak <= budget


@pytest.mark.parametrize("effects", [False, True])
@pytest.mark.parametrize(("step", "nbytes"), [(simple, 8_000), (simple, 800_000), (runge_kutta, 800_000)])
def test_the_smallest_budget_is_used_as_well(step, nbytes, effects):
    """A reversal that has effects outside is not tried, and gets room for eight states until its turn has come."""
    state = array(nbytes)

    def back(x, a, i):
        if effects:
            print(end="")
        return simple_back(x, a, i)

    def call(budget):
        return adjoint(step, back, state, 60, state, memory=budget)

    least = smallest(call)
    peak, _ = peak_of(lambda: call(least))
    assert 0.8 * (least - 6 * nbytes * effects) - 10_000 < peak <= least


def test_room_that_the_first_reversal_did_not_need_is_used():
    state = array(100_000)

    def back(x, a, i):
        print(end="")
        return simple_back(x, a, i)

    budget = 3_000_000
    peak, result = peak_of(lambda: adjoint(simple, back, state, 300, state, memory=budget))
    assert 0.95 * budget < peak <= budget
    tried = adjoint(simple, simple_back, state, 300, state, memory=budget)
    assert same(result.adjoint, tried.adjoint)
    assert result.report.forwards < 1.2 * tried.report.forwards


def test_the_example_of_the_first_page_runs_few_steps_twice():
    start = np.linspace(0.1, 0.9, 1000)
    result = adjoint(simple, simple_back, start, 500, np.ones(1000), memory="200kB")
    assert result.report.factor < 4


def test_a_reversal_is_tried_only_where_that_leaves_nothing_behind():
    gradient, seen, calls = np.zeros(1000), [], {"n": 0}

    class Solver:
        def __init__(self):
            self.turns = 0

        def back(self, x, a, i):
            self.turns += 1
            seen.append(i)
            calls["n"] += 1
            return simple_back(x, a, i)

    def accumulating(x, a, i):
        gradient.__iadd__(x * a)
        return simple_back(x, a, i)

    state, solver = array(8000), Solver()
    for back in (solver.back, accumulating):
        adjoint(simple, back, state, 40, state, memory="200kB")
    assert solver.turns == calls["n"] == 40
    assert seen == list(range(40))[::-1]
    want = np.zeros(1000)
    adjoint(simple, lambda x, a, i: np.add(want, x * a, out=want) * 0 + simple_back(x, a, i), state, 40, state, slots=5)
    assert np.array_equal(gradient, want)
    assert gradient.flags.writeable


def test_two_threads_with_budgets_in_bytes_are_told_apart():
    begun, go_on, found = threading.Event(), threading.Event(), []

    def waiting(x, i):
        if i == 5:
            begun.set()
            go_on.wait(20)
        return simple(x, i)

    state = array(8000)
    first = threading.Thread(
        target=lambda: found.append(adjoint(waiting, simple_back, state, 30, state, memory="200kB").report.schedule)
    )
    first.start()
    begun.wait(20)
    try:
        with pytest.raises(PebblingError, match="another thread runs within memory="):
            adjoint(simple, simple_back, state, 30, state, memory="200kB")
    finally:
        go_on.set()
        first.join()
    # A step is measured anew each time, and a thread of its own takes a little; counting the other run would cost half.
    alone = adjoint(simple, simple_back, state, 30, state, memory="200kB").report.schedule
    slots = [int(re.search(r"slots=(\d+)", schedule)[1]) for schedule in (*found, alone)]
    assert len(slots) == 2
    assert abs(slots[0] - slots[1]) <= 3
