"""What a run keeps, and when it lets go: no cycles, nothing kept behind the walk back, one dense array for rows."""

import gc
import sys
import tracemalloc
import weakref
from types import ModuleType

import numpy as np
import pytest

from pebbling.engine.numpy import Dual, custom, grad, hvp, jvp, step_jvp, step_vjp, step_vjp_dot, vjp

BIG = 100_000
BYTES = BIG * 8


def stencil(x):
    y = np.zeros_like(x)
    for _ in range(3):
        y[1:-1] = x[2:] - 2 * x[1:-1] + x[:-2]
        x = x + 0.1 * y
        x[0] += np.sum(x[1:3] * np.array([1.0, 2.0]))
        row = x[3:7]
        row *= np.tanh(row)
    return np.sum(x * np.concatenate([y, y])[: len(x)])


def linear_algebra(x):
    a = np.outer(x, x) + np.diag(np.arange(1.0, len(x) + 1))
    w, v = np.linalg.eigh(a)
    return np.sum(np.linalg.solve(a, x) * w) + np.sum(v**2) + np.prod(x[:4]) + np.median(x) + np.einsum("ii", a)


@pytest.mark.parametrize("f", [stencil, linear_algebra])
def test_reference_counting_frees_everything(f):
    x = np.linspace(0.1, 1.0, 9)

    def run():
        grad(f)(x)
        hvp(f)(x, x)
        jvp(f, (x,), (x,))
        vjp(f, x)
        grad(lambda x: grad(f)(x)[0])(x)

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()


class Watch:
    """An identity that looks at the memory in use when it is passed, forward and back."""

    def __init__(self):
        self.seen = []

    def run(self, inputs):
        return list(inputs), None

    def vjp(self, residue, cotangents, into):
        self.seen.append(tracemalloc.get_traced_memory()[0])
        into[:] = cotangents

    def jvp(self, inputs, tangents):
        return inputs, tangents


def test_the_tape_is_freed_as_the_walk_back_passes():
    watch = Watch()

    def f(x):
        for _ in range(20):
            (x,) = custom(watch, [np.sin(np.sin(x))])
        return np.sum(x)

    x = np.ones(BIG)
    tracemalloc.start()
    try:
        grad(f)(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(watch.seen) == 20
    for earlier, later in zip(watch.seen[1:], watch.seen[2:]):
        assert later <= earlier - 1.9 * BYTES
    assert watch.seen[-1] <= 5 * BYTES
    assert peak <= 45 * BYTES


def test_gradients_of_a_matrix_are_added_up_without_an_outer_product_a_step():
    """And to the last bit as with one."""
    w, h = np.random.default_rng(0).normal(size=(2, 300, 300)) / 20
    h = h[0]

    def f(w):
        s = h
        for _ in range(4):
            s = np.tanh(w @ s)
        return np.sum(s)

    grad(f)(w)
    tracemalloc.start()
    try:
        found = grad(f)(w)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.5 * w.nbytes
    states = [h]
    for _ in range(4):
        states.append(np.tanh(w @ states[-1]))
    expected, g = None, np.ones(300)
    for before, after in zip(states[-2::-1], states[:0:-1]):
        g = g * (1.0 - after * after)
        expected = g[:, None] * before if expected is None else expected + g[:, None] * before
        g = w.T @ g
    np.testing.assert_array_equal(found, expected)


def test_values_that_no_pullback_needs_are_not_kept():
    def f(x):
        seen = []
        for _ in range(20):
            x = x + 1.0
            x = x * 2.0 - 1.0
            seen.append(weakref.ref(x.value))
        assert sum(ref() is not None for ref in seen) <= 1
        return np.sum(x)

    assert grad(f)(np.ones(5))[0] == 2.0**20


def test_rows_of_a_large_array_share_one_dense_cotangent():
    w = np.ones((200, BIG // 100))

    def f(w):
        total = 0.0
        for i in range(200):
            total = total + np.sum(w[i] * w[i])
        return total

    tracemalloc.start()
    try:
        gradient = grad(f)(w)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(gradient, 2 * w)
    assert peak <= w.nbytes * 1.2 + 1e6


def test_an_accumulator_is_added_to_in_place_over_many_steps():
    w = np.ones((50, 1000))
    state, sums = [np.ones(1000)], [None, None]
    cotangent, place = [np.ones(1000)], None
    for i in reversed(range(50)):
        _out, pullback = step_vjp(lambda v, i=i: [np.sin(v[0]) * v[1][i]], [state[0], w])
        sums[0] = None
        pullback(cotangent, sums)
        assert cotangent == []
        cotangent = [sums[0]]
        place = place or sums[1].ctypes.data
        assert sums[1].ctypes.data == place
    assert np.count_nonzero(sums[1]) == w.size


def test_element_by_element_assignment_copies_once():
    def f(x):
        y = np.zeros_like(x)
        places = set()
        for i in range(50):
            y[i] = x[i] * x[i - 1]
            places.add(y.value.ctypes.data)
        assert len(places) == 1
        z = np.sin(y)
        y[0] = 1.0
        assert (y.value.ctypes.data in places) == isinstance(y, Dual)
        return np.sum(z) + np.sum(y)

    x = np.linspace(0.0, 1.0, 50)
    step = 1e-6
    finite = [
        (np.sum(np.sin(v * np.roll(v, 1))) + np.sum((v * np.roll(v, 1))[1:]))
        for v in (x + step * np.cos(x), x - step * np.cos(x))
    ]
    assert np.sum(grad(f)(x) * np.cos(x)) == pytest.approx((finite[0] - finite[1]) / (2 * step), rel=1e-6)
    jvp(f, (x,), (x,))


def test_one_step_holds_little_beside_its_tape():
    def step(v):
        s, a, b = v
        return [np.tanh(s * a + b)]

    inputs = [np.full(BIG, 0.3), np.full(BIG, 0.5), np.full(BIG, 0.1)]
    into = [None, np.zeros(BIG), np.zeros(BIG)]
    cotangents = [np.ones(BIG)]
    step_vjp(step, inputs)  # a first run looks for what has been imported since the last one
    tracemalloc.start()
    try:
        outputs, pullback = step_vjp(step, inputs)
        taped = tracemalloc.get_traced_memory()[0]
        del outputs
        pullback(cotangents, into)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taped <= 1.01 * BYTES + 10_000
    assert peak <= 4.1 * BYTES


def test_tangents_of_none_are_not_computed():
    a = np.full(BIG, 0.5)
    tracemalloc.start()
    try:
        step_jvp(lambda v: [np.sum(np.tanh(v[0] * v[1] + v[0])), v[2] * 2], [a, a, 1.0], [None, None, 1.0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 3.1 * BYTES


def test_the_second_order_of_rows_adds_in_place_too():
    w = np.ones((50, 1000))
    direction = np.random.default_rng(0).normal(size=w.shape)
    into, into_tangents = [None, None], [None, None]
    places = set()
    for i in range(50):
        step_vjp_dot(
            lambda v, i=i: [np.sin(v[0]) * v[1][i] ** 2],
            [np.full(1000, 0.5), w], [None, direction], [np.ones(1000)], [None], into, into_tangents,
        )  # fmt: skip
        places.add((into[1].ctypes.data, into_tangents[1].ctypes.data))
    assert len(places) == 1
    np.testing.assert_allclose(into[1], 2 * np.sin(0.5) * w)
    np.testing.assert_allclose(into_tangents[1], 2 * np.sin(0.5) * direction)


def test_packages_that_import_numpy_take_no_memory_of_a_budget(monkeypatch):
    """Whatever a program has imported, each entry into a derivative leaves its dictionaries as they are."""
    for number in range(400):
        name = f"imagined_package_{number}"
        module = ModuleType(name)
        module.__file__ = f"/somewhere/site-packages/{name}.py"
        vars(module).update(np=np, **{f"name_{k}": k for k in range(5)})
        monkeypatch.setitem(sys.modules, name, module)
    grad(np.sum)(np.ones(3))  # looks at the new modules
    tracemalloc.start()
    try:
        for _ in range(20):
            grad(np.sum)(np.ones(3))
        # The modules of a program itself, of which these tests are many, still gain a name for a while.
        assert tracemalloc.get_traced_memory()[1] < 150_000
    finally:
        tracemalloc.stop()
