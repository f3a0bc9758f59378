"""Derivatives inside derivatives, nodes with their own derivatives, steps, and trees of arguments."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from pebbling.engine import numpy as engine
from pebbling.engine.numpy import custom, grad, hvp, jvp, step_jvp, step_vjp, step_vjp_dot, value_and_grad, vjp

X = np.array([0.3, 0.7, 1.1])


def f(x):
    return np.sum(np.sin(x[:-1] * x[1:]) ** 2) + np.prod(x) * np.linalg.norm(x)


def hessian():
    eye = np.eye(3)
    return np.array([hvp(f)(X, e) for e in eye])


def test_four_ways_to_the_hessian():
    eye, h = np.eye(3), hessian()
    np.testing.assert_allclose(h, h.T, rtol=1e-12)
    reverse_over_reverse = np.array([grad(lambda x, e=e: np.sum(grad(f)(x) * e))(X) for e in eye])
    np.testing.assert_allclose(reverse_over_reverse, h, rtol=1e-12)
    forward_over_forward = np.array(
        [[jvp(lambda x, a=a: jvp(f, (x,), (a,))[1], (X,), (b,))[1] for a in eye] for b in eye]
    )
    np.testing.assert_allclose(forward_over_forward, h, rtol=1e-12)
    reverse_over_forward = np.array([grad(lambda x, a=a: jvp(f, (x,), (a,))[1])(X) for a in eye])
    np.testing.assert_allclose(reverse_over_forward, h, rtol=1e-12)


def test_third_order():
    g = grad(grad(grad(lambda x: x**5)))
    assert g(2.0) == 240.0
    assert jvp(lambda x: hvp(lambda x: x**5)(x, 1.0), (2.0,), (1.0,))[1] == 240.0


def test_perturbations_are_not_confused():
    def outer(x):
        return x * jvp(lambda y: x + y, (1.0,), (1.0,))[1]

    assert jvp(outer, (3.0,), (1.0,))[1] == 1.0
    assert grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0) == 6.0
    assert grad(lambda x: jvp(lambda y: x * y, (x,), (x,))[1])(3.0) == 6.0


def test_a_value_of_an_outer_derivative_is_a_constant_inside():
    def outer(a):
        inner = grad(lambda x: np.sum(np.tanh(a * x) * np.array([1.0, 2.0, 3.0])))
        return np.sum(inner(X) * a)

    a, step = np.array([0.5, 1.5, 1.0]), 1e-5
    for i in range(3):
        e = step * np.eye(3)[i]
        assert grad(outer)(a)[i] == pytest.approx((outer(a + e) - outer(a - e)) / (2 * step), rel=1e-8)
        assert jvp(outer, (a,), (e / step,))[1] == pytest.approx(grad(outer)(a)[i], rel=1e-12)


def test_assignment_inside_two_derivatives():
    def program(x):
        y = np.zeros_like(x)
        y[1:] = x[1:] * x[:-1]
        y[0] += x[2] ** 3
        y[::2] *= x[0]
        return np.sum(np.sin(y))

    np.testing.assert_allclose(
        hvp(program)(X, X), grad(lambda x: np.sum(grad(program)(x) * X))(X), rtol=1e-12, atol=1e-14
    )


class Cube:
    """x³ y, with rules of its own that count how often they are asked."""

    def __init__(self):
        self.calls = []

    def run(self, inputs):
        self.calls.append("run")
        x, y = inputs
        return [x**3 * y, np.arange(3)], (x, y)

    def vjp(self, residue, cotangents, into):
        self.calls.append("vjp")
        x, y = residue
        assert cotangents[1] is None
        for i, part in enumerate([3 * x**2 * y * cotangents[0], x**3 * cotangents[0]]):
            into[i] = part if into[i] is None else into[i] + part

    def jvp(self, inputs, tangents):
        self.calls.append("jvp")
        (x, y), (s, t) = inputs, tangents
        out = [x**3 * y, np.arange(3)]
        return out, [(0 if s is None else 3 * x**2 * y * s) + (0 if t is None else x**3 * t), None]


def plain_cube(x, y):
    return np.sum(np.sin(x**3 * y))


def test_a_node_with_its_own_derivatives():
    node = Cube()

    def with_node(x, y):
        out, count = custom(node, [x, y])
        assert isinstance(count, np.ndarray)
        return np.sum(np.sin(out))

    y = X + 1.0
    assert with_node(X, y) == plain_cube(X, y)
    assert node.calls == ["run"]
    for ours, theirs in zip(grad(with_node, (0, 1))(X, y), grad(plain_cube, (0, 1))(X, y)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert node.calls == ["run", "run", "vjp"]
    for tangents in ((X, y), (X, 0 * y)):
        ours, theirs = jvp(with_node, (X, y), tangents)[1], jvp(plain_cube, (X, y), tangents)[1]
        assert ours == pytest.approx(theirs, rel=1e-14)
    assert node.calls[3:] == ["jvp", "jvp"]
    np.testing.assert_allclose(hvp(with_node, 1)(X, y, X), hvp(plain_cube, 1)(X, y, X), rtol=1e-13)
    np.testing.assert_allclose(hvp(with_node, 0)(X, y, X), hvp(plain_cube, 0)(X, y, X), rtol=1e-13)
    assert node.calls[5:] == ["run", "vjp"] * 2


def test_a_node_is_given_what_its_inputs_have_so_far():
    seen = []

    class Seeing(Cube):
        def vjp(self, residue, cotangents, into):
            seen.append(list(into))
            super().vjp(residue, cotangents, into)

    def with_node(x, y):
        return np.sum(custom(Seeing(), [x, y])[0]) + np.sum(x * 5.0)

    x, y = X + 0.5, X + 1.0
    found = grad(with_node, (0, 1))(x, y)
    np.testing.assert_array_equal(seen[0][0], np.full(3, 5.0))
    assert seen[0][1] is None
    np.testing.assert_array_equal(found[0], 5.0 + 3 * x**2 * y)


def test_a_node_that_gives_wrong_shapes_is_told():
    class Wrong(Cube):
        def vjp(self, residue, cotangents, into):
            into[:] = [np.ones(2), None]

    class Short(Cube):
        def vjp(self, residue, cotangents, into):
            into[:] = [None]

    with pytest.raises(ValueError, match=r"shape \(2,\) for input 0, which has shape \(3,\)"):
        grad(lambda x: np.sum(custom(Wrong(), [x, X])[0]))(X)
    with pytest.raises(ValueError, match="1 cotangents for 2 inputs"):
        grad(lambda x: np.sum(custom(Short(), [x, X])[0]))(X)


def step(v):
    s, a, n = v
    return [np.tanh(s * a + n), s, n + 1]


def test_one_step():
    s, a = X, X + 0.5
    outputs, pullback = step_vjp(step, [s, a, 2])
    np.testing.assert_array_equal(outputs[0], np.tanh(s * a + 2))
    assert outputs[1] is s
    assert outputs[2] == 3
    into = [None, np.ones(3), None]
    pullback([np.ones(3), 10 * np.ones(3), None], into)
    slope = 1 - np.tanh(s * a + 2) ** 2
    np.testing.assert_allclose(into[0], slope * a + 10, rtol=1e-14)
    np.testing.assert_allclose(into[1], slope * s + 1, rtol=1e-14)
    assert into[2] is None


def test_one_step_with_respect_to_some_inputs():
    _, pullback = step_vjp(step, [X, X, 2], wrt=[True, False, False])
    into = [None, None, None]
    pullback([np.ones(3), None, None], into)
    assert into[1] is None
    assert into[0] is not None


def test_one_step_forward():
    outputs, tangents = step_jvp(step, [X, X, 2], [None, np.ones(3), None])
    np.testing.assert_array_equal(outputs[0], np.tanh(X * X + 2))
    np.testing.assert_allclose(tangents[0], (1 - outputs[0] ** 2) * X, rtol=1e-14)
    assert tangents[1:] == [None, None]


def test_one_step_of_second_order_is_the_derivative_of_the_first():
    s, a = X, X + 0.5
    ds, da, g, dg = X + 1, X - 2, X * 3, X + 0.1
    into, into_tangents = [None] * 3, [None] * 3
    outputs, tangents = step_vjp_dot(
        step, [s, a, 2], [ds, da, None], [g, None, None], [dg, None, None], into, into_tangents
    )

    def pulled(h):
        sums = [None, None, None]
        out, pullback = step_vjp(step, [s + h * ds, a + h * da, 2])
        pullback([g + h * dg, None, None], sums)
        return [out[0], *sums[:2]]

    h = 1e-5
    finite = [(p - m) / (2 * h) for p, m in zip(pulled(h), pulled(-h))]
    for ours, theirs in zip([tangents[0], *into_tangents[:2]], finite):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    for ours, theirs in zip([outputs[0], *into[:2]], pulled(0.0)):
        assert ours.tobytes() == theirs.tobytes()


class Pair(NamedTuple):
    first: object
    second: object


@dataclass(frozen=True)
class Model:
    weight: object
    rest: dict


def test_trees_of_arguments():
    def loss(model, pair, scale):
        return scale * np.sum(model.weight * pair.first) + np.sum(model.rest["b"][0] ** 2) + pair.second

    model = Model(np.ones(3), {"b": [np.array(2.0), None]})
    pair = Pair(X, 1.5)
    value, (dm, dp) = value_and_grad(loss, (0, 1))(model, pair, scale=2.0)
    assert value == pytest.approx(2 * X.sum() + 4 + 1.5)
    assert isinstance(dm, Model)
    assert isinstance(dp, Pair)
    np.testing.assert_array_equal(dm.weight, 2 * X)
    assert dm.rest["b"][0] == 4.0
    assert dm.rest["b"][1] is None
    np.testing.assert_array_equal(dp.first, 2 * np.ones(3))
    assert dp.second == 1.0


def test_outputs_that_do_not_depend_on_the_arguments():
    assert grad(lambda x: 3.0)(2.0) == 0.0
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.ones(2)))(X), np.zeros(3))
    (_y, _z), pullback = vjp(lambda x: (x * 2, np.ones(2)), X)
    np.testing.assert_array_equal(pullback((X, np.ones(2)))[0], 2 * X)
    assert jvp(lambda x: np.ones(2), (X,), (X,))[1].tolist() == [0.0, 0.0]


def test_gradients_share_no_memory():
    a, b = grad(lambda a, b: np.sum(a + b), (0, 1))(X, X + 1)
    a[0] = 5.0
    assert b[0] == 1.0
    (g,) = vjp(lambda x: x, X)[1](X)
    assert not np.shares_memory(g, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.longdouble, np.complex64])
def test_gradients_have_the_dtype_of_their_argument(dtype):
    def mixed(x):
        y = np.sin(x) * np.ones(3) + x**2 / 3 + np.abs(x) + np.exp(x) + np.maximum(np.real(x), 0)
        return np.sum(np.real(y * np.linspace(0, 1, 3)))

    x = X.astype(dtype)
    assert grad(mixed)(x).dtype == dtype
    assert hvp(mixed)(x, x).dtype == dtype
    _, tangent = jvp(np.tanh, (x,), (x,))
    assert tangent.dtype == dtype


def test_python_numbers_stay_weak():
    def g(x, a):
        y = x * a * 2.0
        assert y.dtype == np.float32
        return np.sum(y)

    x = X.astype(np.float32)
    gx, ga = grad(g, (0, 1))(x, 0.5)
    assert gx.dtype == np.float32
    assert ga == pytest.approx(2 * X.sum(), rel=1e-6)


def test_control_flow_and_conversions_that_need_no_derivative():
    def program(x):
        assert len(x) == 3
        assert x.shape == (3,)
        assert (x.ndim, x.size, x.dtype, x.nbytes) == (1, 3, np.dtype(float), 24)
        assert f"{x[0]:.1f} {x.sum()}" == f"0.3 {X.sum()}"
        assert repr(x[0]).startswith(("Var", "Dual"))
        total = 0.0
        for v in x:
            if v > 0.5 and int(v * 10) != 3:
                total = total + max(v, 0.0) ** 2
            elif round(v) == 0 and 0.3 in x and not np.isnan(v):
                total -= abs(-v)
        assert (x > 0).all()
        assert np.argmax(x) == 2
        assert x.argsort().tolist() == [0, 1, 2]
        assert isinstance(x > 0.5, np.ndarray)
        return total + sum(x.tolist()) + (x @ x) * engine.array([1.0, x[0]])[1] + engine.asarray(x)[2]

    expected = np.array([-1 + 1, 1.4 + 1, 2.2 + 1]) + 2 * X * X[0] + np.array([X @ X, 0, 1])
    np.testing.assert_allclose(grad(program)(X), expected, rtol=1e-14)
    assert jvp(program, (X,), (X,))[1] == pytest.approx(np.sum(expected * X))
