"""What a checkpointed loop holds at its peak, measured by tracemalloc above what was there before the call."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from pebbling.numpy import grad, hvp, loop

SIZE = 20_000
STATE = 8 * SIZE
RNG = np.random.default_rng(3)
X, A, B, V = (RNG.normal(size=SIZE) for _ in range(4))


def peak(call):
    """Bytes of the second call: the first fills caches."""
    call()
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def body(i, s, a, b):
    return np.tanh(s * a + b)


def gradient(n, **options):
    return grad(lambda x, a, b: np.sum(loop(body, x, n, a, b, **options)), (0, 1, 2))


def tape_of_one_step():
    """What a taped step and its reversal take, results included."""

    def one(x, a, b):
        return np.sum(body(0, x, a, b))

    return peak(lambda: grad(one, (0, 1, 2))(X, A, B))


@pytest.mark.parametrize("slots", [1, 2, 4, 8, 16])
def test_slots_bound_the_peak(slots):
    n = 40
    run = gradient(n, slots=slots)
    assert peak(lambda: run(X, A, B)) <= (slots + 6) * STATE + tape_of_one_step()


def test_the_peak_does_not_grow_with_the_length():
    short, long = (peak(lambda n=n: gradient(n, slots=4)(X, A, B)) for n in (20, 200))
    assert long <= short + STATE // 2


@pytest.mark.parametrize("budget", [2_000_000, 3_000_000, 5_000_000, 9_000_000, 20_000_000, 64_000_000])
def test_a_budget_in_bytes_bounds_the_peak_and_is_used(budget):
    run = gradient(120, memory=budget)
    found = peak(lambda: run(X, A, B))
    everything = peak(lambda: gradient(120, slots=120)(X, A, B))
    assert found <= budget
    assert found >= 0.6 * min(budget, everything)


@pytest.mark.parametrize("budget", [60_000, 100_000, 400_000])
def test_a_budget_bounds_the_peak_where_objects_weigh_more_than_arrays(budget):
    x, a, b = X[:100].copy(), A[:100].copy(), B[:100].copy()
    run = gradient(500, memory=budget)
    assert peak(lambda: run(x, a, b)) <= budget


@pytest.mark.parametrize("budget", [2_000_000, 4_000_000, 9_000_000])
def test_a_budget_holds_where_the_first_step_differentiates_less_than_later_ones(budget):
    """The initial state is a constant: only from the second step on does the tape follow it."""
    run = grad(lambda a: np.sum(loop(body, X, 120, a, B, memory=budget)))
    assert peak(lambda: run(A)) <= budget


def test_a_budget_bounds_loops_of_unknown_length():
    run = grad(lambda x: np.sum(loop(body, x, lambda s, i: i < 80, A, B, memory="4MB")))
    assert peak(lambda: run(X)) <= 4_000_000


def test_nested_loops_add_their_memory():
    def nested(slots):
        def outer(i, s, a, b):
            return loop(body, s, 20, a, b, slots=slots)

        return grad(lambda x, a, b: np.sum(loop(outer, x, 20, a, b, slots=slots)), (0, 1, 2))

    one = peak(lambda: gradient(400, slots=4)(X, A, B))
    assert peak(lambda: nested(4)(X, A, B)) <= one + (4 + 3) * STATE


@pytest.mark.parametrize("argnum", [0, 1])
def test_a_hessian_product_takes_at_most_twice_the_memory_of_the_gradient(argnum):
    def f(x, a, b):
        return np.sum(loop(body, x, 60, a, b, slots=8))

    product, first = hvp(f, argnum), grad(f, argnum)
    assert peak(lambda: product(X, A, B, V)) <= 2.0 * peak(lambda: first(X, A, B))


def test_nothing_is_left_to_the_garbage_collector():
    def f(x, a, b):
        return np.sum(loop(body, {"s": x, "t": 0.5}["s"], 30, a, b, slots=3))

    x, a, b = X[:10].copy(), A[:10].copy(), B[:10].copy()
    calls = [lambda: grad(f, (0, 1, 2))(x, a, b), lambda: hvp(f)(x, a, b, x)]
    for call in calls:
        call()
    gc.collect()
    gc.disable()
    try:
        for call in calls:
            call()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_first_state_is_not_held_after_the_gradient():
    import weakref

    x = X.copy()
    gradient(10, slots=2)(x, A, B)
    reference = weakref.ref(x)
    del x
    assert reference() is None
