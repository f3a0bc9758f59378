"""Ops of torch, jax and NumPy functions, alone and together in one loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pebbling as pb

X, A = np.array([0.3, -0.6, 0.9]), np.array([1.1, 0.8, 0.5])


def numpy_step(u, a, *, c=0.5):
    return np.sin(a * u) + c * u


def torch_step(u, a, *, c=0.5):
    return torch.sin(a * u) + c * u


def jax_step(u, a, *, c=0.5):
    return jnp.sin(a * u) + c * u


def loss(tape, step, u, a, steps=7, **statics):
    for _ in tape.loop(range(steps)):
        u = step(u, a, **statics)
    return u


def expected(steps=7, c=0.5):
    """The gradient of the sum and the Hessian times one, by pebbling's engine for NumPy."""

    def f(a):
        u = X
        for _ in range(steps):
            u = numpy_step(u, a, c=c)
        return np.sum(u)

    return pb.grad(f)(A), pb.hvp(f)(A, np.ones(3))


@pytest.mark.parametrize("make", [pb.op.from_numpy, pb.op.from_torch, pb.op.from_jax], ids=["numpy", "torch", "jax"])
@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_a_function_of_one_framework_on_arrays_of_another(make, kind):
    function = {"from_numpy": numpy_step, "from_torch": torch_step, "from_jax": jax_step}[make.__name__]
    into = {"numpy": np.asarray, "torch": torch.from_numpy, "jax": jnp.asarray}[kind]
    with jax.enable_x64(True):
        step = make(function)
        tape = pb.Tape(slots=3)
        x, a = tape.leaf(into(X.copy())), tape.leaf(into(A.copy()))
        u = loss(tape, step, x, a, c=0.25)
        assert type(u.value) is type(x.value)
        gradient, change = tape.hvp(u, {a: into(np.ones(3))}, into(np.ones(3)))
        exact, exact_change = expected(c=0.25)
        assert type(gradient[a]) is type(x.value)
        np.testing.assert_allclose(np.asarray(gradient[a]), exact, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(change[a]), exact_change, rtol=1e-11)
        assert np.asarray(tape.pullback(u, into(np.ones(3)))[a]).tobytes() == np.asarray(gradient[a]).tobytes()
        assert step.check(x.value, a.value, c=0.25).passed


@pytest.mark.parametrize("slots", [1, 3, 20])
def test_a_loop_that_alternates_numpy_and_torch(slots):
    first, second = pb.op.from_numpy(numpy_step), pb.op.from_torch(torch_step)

    def run(slots):
        tape = pb.Tape(slots=slots)
        x, a = tape.leaf(X), tape.leaf(A)
        u = x
        for i in tape.loop(range(8)):
            u = first(u, a) if i % 2 else second(u, a)
        found = tape.pullback(u, np.ones(3))
        return found[a], tape.hvp(u, {a: np.ones(3)}, np.ones(3))[1][a]

    gradient, change = run(slots)
    exact, exact_change = expected(8)
    np.testing.assert_allclose(gradient, exact, rtol=1e-12)
    np.testing.assert_allclose(change, exact_change, rtol=1e-11)
    assert gradient.tobytes() == run(100)[0].tobytes()


def test_a_module_inside_numpy_code():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    step = pb.op.from_torch(network)
    tape = pb.Tape(slots=2)
    x = u = tape.leaf(X)
    for _ in tape.loop(range(4)):
        u = step(u)
    found = tape.pullback(u, np.ones(3))[x]
    given = torch.from_numpy(X.copy()).requires_grad_()
    value = given
    for _ in range(4):
        value = network(value)
    np.testing.assert_allclose(found, torch.autograd.grad(value.sum(), given)[0].numpy(), rtol=1e-12)
    assert isinstance(u.value, np.ndarray)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_several_outputs_and_inputs_without_derivative():
    split = pb.op.from_torch(lambda u, index: (torch.sin(u)[index], u.sum()))
    tape = pb.Tape()
    x = tape.leaf(X)
    part, total = split(x, np.array([0, 2]))
    assert part.value.shape == (2,)
    assert np.shape(total.value) == ()
    np.testing.assert_allclose(tape.pullback(part, np.ones(2))[x], np.cos(X) * [1, 0, 1], rtol=1e-15)
    np.testing.assert_allclose(tape.pullback(total)[x], np.ones(3), rtol=1e-15)
    change = tape.hvp(part, {x: np.ones(3)}, np.ones(2))[1][x]
    np.testing.assert_allclose(change, -np.sin(X) * [1, 0, 1], rtol=1e-15)


def test_own_rules_written_in_torch_or_jax_get_their_second_order_built():
    def square(x):
        return x * x

    for into in (torch.tensor, lambda value: jnp.asarray(value, jnp.float32), np.asarray):
        op = pb.op(square)
        op.vjp(lambda x, y, g: 2 * x[0] * g)
        tape = pb.Tape()
        x = tape.leaf(into(np.array([3.0, 4.0], np.float32)))
        gradient, change = tape.hvp(op(x), {x: into(np.ones(2, np.float32))}, into(np.ones(2, np.float32)))
        assert np.asarray(gradient[x]).tolist() == [6.0, 8.0]
        assert np.asarray(change[x]).tolist() == [2.0, 2.0]


def test_a_rule_that_gives_an_array_of_another_framework_is_named():
    op = pb.op(lambda x: x * 2)
    op.vjp(lambda x, y, g: 2 * g.numpy())
    tape = pb.Tape()
    x = tape.leaf(torch.ones(2))
    with pytest.raises(pb.PebblingError, match="gave a numpy array for input 0, which is a torch array"):
        tape.pullback(op(x), torch.ones(2))


def test_jax_does_not_round_in_silence():
    step = pb.op.from_jax(jax_step)
    with pytest.raises(pb.PebblingError, match="jax makes float32 of an array of float64"):
        step(X, A)
