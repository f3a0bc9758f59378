"""One list of tests for every engine: what a driver may rely on."""

import importlib
import inspect

import autograd.numpy as anp
import numpy as np
import pytest

from pebbling.engine import protocol

ENGINES = {"numpy": np, "autograd": anp}
X = np.array([0.3, 0.7, 1.1])


@pytest.fixture(params=ENGINES)
def engine(request):
    return importlib.import_module(f"pebbling.engine.{request.param}"), ENGINES[request.param]


def make_step(xp):
    def step(v):
        s, a, w, n = v
        return [xp.tanh(s * a + w[n]), xp.sum(s) * a, s, n + 1]

    return step


INPUTS = [X, X + 0.5, np.arange(6.0).reshape(2, 3) / 6, 1]
TANGENTS = [X - 1, None, np.ones((2, 3)), None]
SEEDS = [X * 2, X + 1, None, None]
SEED_TANGENTS = [X + 3, None, None, None]


def moved(h):
    inputs = [x if t is None else x + h * t for x, t in zip(INPUTS, TANGENTS)]
    return inputs, [g if t is None else g + h * t for g, t in zip(SEEDS, SEED_TANGENTS)]


def pulled(engine, step, h=0.0):
    inputs, seeds = moved(h)
    into = [None] * 4
    _, pullback = engine.step_vjp(step, inputs)
    pullback(seeds, into)
    return into[:3]


def test_the_names_and_arguments_are_those_of_the_protocol(engine):
    for name, function in inspect.getmembers(protocol.Engine, inspect.isfunction):
        if not name.startswith("_"):
            expected = [p for p in inspect.signature(function).parameters if p != "self"]
            found = list(inspect.signature(getattr(engine[0], name)).parameters)
            assert found == expected or (len(found) == len(expected) == 1), name


def test_what_is_active(engine):
    engine, _xp = engine
    seen = []
    engine.step_vjp(lambda v: [seen.append([engine.active(x) for x in v]) or v[0] * 2], [X, X, 3], [True, False, False])
    assert seen == [[True, False, False]]
    assert not engine.active(X)
    kinds = [X, 1.0, np.float32(1), X + 1j, 3, np.arange(3), "text", None, [1.0]]
    assert [engine.differentiable(kind) for kind in kinds] == [True] * 4 + [False] * 5


def test_the_pullback_is_the_transpose_of_the_pushforward(engine):
    engine, xp = engine
    step = make_step(xp)
    outputs, pushed = engine.step_jvp(step, INPUTS, TANGENTS)
    np.testing.assert_array_equal(outputs[0], np.tanh(X * (X + 0.5) + INPUTS[2][1]))
    assert outputs[3] == 2
    assert pushed[3] is None
    left = sum(np.sum(g * t) for g, t in zip(SEEDS, pushed) if g is not None)
    right = sum(np.sum(c * t) for c, t in zip(pulled(engine, step), TANGENTS) if t is not None)
    assert left == pytest.approx(right, rel=1e-13)
    h = 1e-6
    finite = (step(moved(h)[0])[0] - step(moved(-h)[0])[0]) / (2 * h)
    np.testing.assert_allclose(pushed[0], finite, rtol=1e-8)


def test_sums_are_added_to_and_lists_used_up(engine):
    engine, xp = engine
    plain = pulled(engine, make_step(xp))
    start = [np.ones(3), None, np.ones((2, 3)), None]
    kept = start[0]
    seeds = list(SEEDS)
    _, pullback = engine.step_vjp(make_step(xp), INPUTS)
    pullback(seeds, start)
    assert seeds == []
    np.testing.assert_allclose(start[0], plain[0] + 1, rtol=1e-15)
    np.testing.assert_allclose(start[2], plain[2] + 1, rtol=1e-15)
    np.testing.assert_array_equal(kept, np.ones(3))
    with pytest.raises(RuntimeError, match="used"):
        pullback(list(SEEDS), [None] * 4)


def test_an_output_nobody_asks_for_costs_nothing(engine):
    engine, xp = engine
    into = [None] * 4
    engine.step_vjp(make_step(xp), INPUTS)[1]([None] * 4, into)
    assert into == [None] * 4


# Second orders are asked of the engine of NumPy alone: autograd has its own.
@pytest.mark.parametrize("engine", ["numpy"], indirect=True)
def test_second_order_of_one_step(engine):
    engine, xp = engine
    step = make_step(xp)
    into, into_tangents = [None] * 4, [None] * 4
    outputs, pushed = engine.step_vjp_dot(step, INPUTS, TANGENTS, SEEDS, SEED_TANGENTS, into, into_tangents)
    first_outputs, first_pushed = engine.step_jvp(step, INPUTS, TANGENTS)
    for ours, theirs in zip([*outputs[:3], *pushed[:3]], [*first_outputs[:3], *first_pushed[:3]]):
        np.testing.assert_array_equal(ours, theirs)
    h = 1e-5
    for ours, theirs, p, m in zip(into, pulled(engine, step), pulled(engine, step, h), pulled(engine, step, -h)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
        np.testing.assert_allclose(into_tangents.pop(0), (p - m) / (2 * h), rtol=1e-6, atol=1e-9)


class Cubes:
    """x³ y and x y, by hand."""

    def run(self, inputs):
        x, y = inputs
        return [x**3 * y, x * y, 7], (x, y)

    def vjp(self, residue, cotangents, into):
        (x, y), (g, h, _) = residue, cotangents
        g, h = (0.0 if part is None else part for part in (g, h))
        for i, part in enumerate([3 * x**2 * y * g + y * h, x**3 * g + x * h]):
            into[i] = part if into[i] is None else into[i] + part

    def jvp(self, inputs, tangents):
        (x, y), (s, t) = inputs, [0.0 if part is None else part for part in tangents]
        return [x**3 * y, x * y, 7], [3 * x**2 * y * s + x**3 * t, y * s + x * t, None]


# Second orders are asked of the engine of NumPy alone: autograd has its own.
@pytest.mark.parametrize("engine", ["numpy"], indirect=True)
def test_a_node_in_both_orders(engine):
    engine, xp = engine

    def with_node(v):
        first, second, number = engine.custom(Cubes(), v)
        assert number == 7
        return [xp.sin(first) * second]

    def without(v):
        return [xp.sin(v[0] ** 3 * v[1]) * (v[0] * v[1])]

    y, results = X + 0.5, []
    for step in (with_node, without):
        outputs, pushed = engine.step_jvp(step, [X, y], [X - 1, None])
        into, into_tangents = [None, None], [None, None]
        more = engine.step_vjp_dot(step, [X, y], [None, X - 2], [X + 1], [X - 3], into, into_tangents)
        results.append([*outputs, *pushed, *into, *into_tangents, *more[0], *more[1]])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    np.testing.assert_array_equal(engine.custom(Cubes(), [X, y])[1], X * y)
