"""What a tape holds: the plan's states and a few more, a few bytes a step, and nothing after ``free``."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
import torch

import pebbling as pb
from pebbling.store import Disk

SIZE = 20_000
STATE = 8 * SIZE


@pb.op
def grow(u, a):
    return u + 0.01 * a * u


@grow.vjp
def _(x, y, g):
    return g + 0.01 * x[1] * g, 0.01 * x[0] * g


@grow.jvp
def _(x, y, dx):
    return dx[0] + 0.01 * (dx[1] * x[0] + x[1] * dx[0])


@pb.op
def total(u):
    return np.sum(u * u)


@total.vjp
def _(x, y, g):
    return 2 * g * x[0]


@total.jvp
def _(x, y, dx):
    return 2 * np.sum(x[0] * dx[0])


def peak_of(function, warm=True):
    """The peak of a call above what was there before, and its result."""
    if warm:
        function()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = function()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak, result


def depth():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def leaves():
    return np.linspace(0.5, 1.0, SIZE), np.linspace(0.2, 0.9, SIZE)


U0, A0 = leaves()


def loop_gradient(steps, unknown=False, **budget):
    tape = pb.Tape(**budget)
    u, a = tape.leaf(U0), tape.leaf(A0)
    for i in tape.loop(None if unknown else range(steps)):
        u = grow(u, a)
        if i == steps - 1:
            break
    return tape.pullback(total(u))[a]


def chain_gradient(steps, **budget):
    tape = pb.Tape(**budget)
    u, a = tape.leaf(U0), tape.leaf(A0)
    for _ in range(steps):
        u = grow(u, a)
    return tape.pullback(total(u))[a]


EXACT = {steps: loop_gradient(steps, schedule=pb.StoreAll(steps)).tobytes() for steps in (60, 200)}


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("slots", [4, 8])
def test_the_peak_is_that_of_the_plan_however_long_the_loop(slots, unknown):
    found = []
    for steps in (60, 200):
        peak, gradient = peak_of(lambda n=steps: loop_gradient(n, unknown, slots=slots))
        assert gradient.tobytes() == EXACT[steps]
        found.append(peak)
    assert max(found) <= (slots + 8.5) * STATE
    assert abs(found[1] - found[0]) < 0.5 * STATE


def test_storing_everything_takes_a_state_a_step():
    peak, _ = peak_of(lambda: loop_gradient(60, schedule=pb.StoreAll(60)))
    assert 60 * STATE < peak < 72 * STATE


@pytest.mark.parametrize("slots", [4, 8])
def test_a_chain_of_a_thousand_replayed_ops_peaks_at_its_budget(slots):
    runs = []
    counting = pb.op(lambda u, a: runs.append(1) or u + 0.01 * a * u)
    counting.vjp(lambda x, y, g: (g + 0.01 * x[1] * g, None))

    start, factor = U0[: SIZE // 2].copy(), A0[: SIZE // 2].copy()

    def gradient():
        tape = pb.Tape(slots=slots)
        x = u = tape.leaf(start)
        for _ in range(1000):
            u = counting.replay()(u, factor)
        return tape.pullback(u, start)[x]

    peak, _ = peak_of(gradient, warm=False)
    assert peak <= (slots + 8) * STATE / 2 + 1000 * 700
    assert len(runs) <= 1000 + 1.01 * pb.Online(slots).ended(1000).cost.forwards - 1000


def test_the_peak_of_an_unknown_chain_does_not_grow_with_hints():
    kept, _ = peak_of(lambda: chain_gradient(100))
    replayed, _ = peak_of(lambda: chain_gradient(100, keep="none", slots=5))
    assert kept > 100 * STATE
    assert replayed < 14 * STATE


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("states", [0, 15, 40, 150])
def test_a_budget_in_bytes_bounds_the_peak(states, unknown):
    with pytest.raises(pb.BudgetError) as caught:
        loop_gradient(60, unknown, memory=1000)
    memory = max(int(caught.value.minimum), states * STATE)
    peak, gradient = peak_of(lambda: loop_gradient(60, unknown, memory=memory))
    assert gradient.tobytes() == EXACT[60]
    assert peak <= memory


def test_a_budget_that_holds_everything_replays_nothing():
    runs = []
    counting = pb.op(lambda u: runs.append(1) or u * 1.01)
    counting.vjp(lambda x, y, g: 1.01 * g)
    tape = pb.Tape(memory="100MiB")
    x = u = tape.leaf(U0)
    for _ in tape.loop(range(30)):
        u = counting(u)
    # one more is the trial that measures a reversal
    assert len(runs) == 31
    tape.pullback(u, U0)
    assert len(runs) == 31
    assert x.value is U0


@pytest.mark.parametrize("states", [0, 20, 60])
def test_a_budget_in_bytes_bounds_products_and_chains_outside_of_loops(states):
    with pytest.raises(pb.BudgetError) as caught:
        chain_gradient(200, memory=1000)
    memory = max(int(caught.value.minimum), states * STATE)
    peak, gradient = peak_of(lambda: chain_gradient(60, memory=memory))
    assert gradient.tobytes() == EXACT[60]
    assert peak <= memory

    def product(memory):
        tape = pb.Tape(memory=memory)
        u, a = tape.leaf(U0), tape.leaf(A0)
        for _ in tape.loop(range(60)):
            u = grow(u, a)
        return tape.hvp(total(u), {a: A0})[1][a]

    with pytest.raises(pb.BudgetError) as caught:
        product(8 * STATE)
    memory = int(max(caught.value.minimum, 2 * states * STATE))
    try:
        product(memory)
    except pb.BudgetError as error:  # the recording fits, and the product needs more
        memory = int(error.minimum)
    peak, change = peak_of(lambda: product(memory))
    assert peak <= memory
    assert change.tobytes() == product("100MiB").tobytes()


def test_two_loops_share_the_slots():
    def gradient(**budget):
        tape = pb.Tape(**budget)
        u, a = tape.leaf(U0), tape.leaf(A0)
        for _ in tape.loop(range(50)):
            u = grow(u, a)
        for _ in tape.loop(range(50)):
            u = grow(u, a)
        return tape.pullback(total(u))[a]

    exact = gradient(slots=1000).tobytes()
    for budget, limit in (({"slots": 8}, 18 * STATE), ({"memory": 30 * STATE}, 30 * STATE)):
        peak, found = peak_of(lambda budget=budget: gradient(**budget))
        assert found.tobytes() == exact
        assert peak <= limit


def test_names_that_stay_bound_are_not_kept_in_snapshots():
    def gradient():
        tape = pb.Tape(slots=12)
        x = u = tape.leaf(U0)
        for _ in tape.loop(range(60)):
            between = grow(u, A0)
            u = grow(between, A0)
        return tape.pullback(u, U0)[x]

    peak, _ = peak_of(gradient)
    assert peak < (12 + 9) * STATE


@pytest.mark.parametrize("changing", [False, True])
def test_a_step_takes_at_most_300_bytes(changing):
    scale = pb.op(lambda x, *, t: x * t)
    scale.vjp(lambda x, y, g, *, t: g * t)

    def record(steps):
        tape = pb.Tape(slots=4)
        u = tape.leaf(1.0)
        for i in tape.loop(range(steps)):
            u = scale(u, t=1.0 + i * 1e-9 if changing else 1.0)
        return tape, u

    def taken(steps):
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        kept = record(steps)
        found = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(kept[0]._templates) <= 4
        return found

    # Python keeps up to 2000 tuples that are not in use, so it is the difference that counts.
    assert (taken(6000) - taken(3000)) / 3000 < (300 if changing else 60)


def test_free_lets_go_of_everything_although_handles_live():
    tape = pb.Tape(slots=8)
    arrays = []
    remembering = pb.op(lambda u: arrays.append(weakref.ref(out := u * 1.01)) or out)
    remembering.vjp(lambda x, y, g: 1.01 * g)
    u = tape.leaf(U0.copy())
    for _ in range(3):
        first = remembering(u)
    for _ in tape.loop(range(40)):
        u = remembering(u)
    alive = [reference for reference in arrays if reference() is not None]
    assert 4 <= len(alive) <= 14
    tape.free()
    assert {id(reference()) for reference in arrays if reference() is not None} == {id(u.value), id(first.value)}


def test_a_tape_that_is_dropped_goes_at_once():
    gc.collect()
    gc.disable()
    try:
        for budget in ({"slots": 4}, {"memory": "50MiB"}, {"schedule": pb.StoreAll(20)}):
            tape = pb.Tape(**budget)
            x = u = tape.leaf(U0.copy())
            for _ in tape.loop(range(20)):
                u = grow(u, x)
            tape.pullback(total(u))
            kept = weakref.ref(u.value)
            del tape, u, x
            assert kept() is None
    finally:
        gc.enable()


def test_replays_do_not_recurse():
    depths = set()

    @pb.op
    def look(x):
        depths.add(depth())
        return x * 1.0

    look.vjp(lambda x, y, g: g)
    found = []
    for steps in (5, 200):
        tape = pb.Tape(slots=3, keep="none")
        u = tape.leaf(1.0)
        for _ in tape.loop(range(steps)):
            u = look(u)
        for _ in range(steps):
            u = look(u)
        depths.clear()
        tape.pullback(u)
        found.append(max(depths))
    assert found[0] == found[1]


def test_a_budget_in_bytes_with_loops_in_loops_and_ops_around_them():
    def gradient(**budget):
        tape = pb.Tape(**budget)
        u, a = tape.leaf(U0), tape.leaf(A0)
        for _ in range(6):
            u = grow(u, a)
        for _ in tape.loop(range(25)):
            for _ in tape.loop(range(12)):
                u = grow(u, a)
        for _ in range(6):
            u = grow(u, a)
        return tape.pullback(total(u))[a]

    exact = gradient(slots=1000).tobytes()
    for states in (25, 40, 100):
        peak, found = peak_of(lambda states=states: gradient(memory=states * STATE))
        assert found.tobytes() == exact
        assert peak <= states * STATE


@pytest.mark.parametrize("states", [20, 30])
def test_a_budget_in_bytes_with_a_disk(states, tmp_path):
    with Disk(tmp_path) as store:
        peak, gradient = peak_of(lambda: loop_gradient(60, memory=states * STATE, store=store))
        assert gradient.tobytes() == EXACT[60]
        assert peak <= states * STATE
        assert store.keys() == []


def test_snapshots_on_a_disk_take_no_memory(tmp_path):
    with Disk(tmp_path) as store:
        peak, gradient = peak_of(lambda: loop_gradient(60, slots=30, store=store))
    assert gradient.tobytes() == EXACT[60]
    assert peak < 12 * STATE


def test_a_product_over_two_loops_keeps_the_snapshots_of_one_at_a_time():
    def product(**budget):
        tape = pb.Tape(**budget)
        u, a = tape.leaf(U0), tape.leaf(A0)
        for _ in range(2):
            for _ in tape.loop(range(30)):
                u = grow(u, a)
        return tape.hvp(total(u), {a: A0})[1][a]

    peak, found = peak_of(lambda: product(slots=8))
    assert found.tobytes() == product(slots=1000).tobytes()
    assert peak < 2 * (8 + 12) * STATE


def test_memory_of_arrays_that_cannot_be_measured_is_refused():
    double = pb.op(lambda x: 2 * x)
    double.vjp(lambda x, y, g: 2 * g)
    for in_loop in (True, False):
        tape = pb.Tape(memory="1MB")
        steps = tape.loop(range(5)) if in_loop else iter(range(5))

        def run(tape=tape, steps=steps):
            u = tape.leaf(torch.ones(3))
            for _ in steps:
                u = double(u)

        with pytest.raises(ValueError, match="give slots= instead"):
            run()


def test_measuring_leaves_no_tracing_behind():
    double = pb.op(lambda x: 2 * x)
    double.vjp(lambda x, y, g: 2 * g)
    for length in range(4):
        tape = pb.Tape(memory="50MiB")
        x = u = tape.leaf(U0)
        for _ in tape.loop(range(length)):
            u = double(u)
        assert not tracemalloc.is_tracing()
        assert tape.pullback(u, U0)[x].tobytes() == (2.0**length * U0).tobytes()
    assert not tracemalloc.is_tracing()
