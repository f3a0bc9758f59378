"""Whole problems: known loops of other tools, and a neural differential equation."""

import functools
import math

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_common import assert_same

import pebbling as pb
import pebbling.jax as pj
from pebbling.chain import binomial


def test_a_smooth_map_with_known_values():
    """x ← x·cos(2πx), five steps with a budget of two."""
    x = jnp.array([0.0, 0.7853982, 0.3926991])
    run = lambda x: pj.fori_loop(0, 5, lambda i, y: y * jnp.cos(2 * jnp.pi * y), x, slots=2)  # noqa: E731
    y, pull = jax.vjp(run, x)
    np.testing.assert_allclose(y, [0, 0.0585665, 0.0650583], atol=2e-6)
    np.testing.assert_allclose(pull(jnp.ones(3))[0], [1, -0.870949, 0.75936], atol=2e-5)


@pytest.mark.parametrize("at_run_time", [False, True])
def test_a_body_that_uses_the_index(at_run_time):
    """i = 3, 6, …, 30, with bounds known when tracing and when running; each replay must see its own index."""

    def run(loop, x, stop):
        steps = (stop - 3) // 3 + 1
        return jnp.sum(loop(0, steps, lambda k, y: (3 + 3 * k) * 0.01 * jnp.cos(2 * jnp.pi * y), x))

    x = jnp.array([0.1, 0.3, 0.7])
    mine = functools.partial(pj.fori_loop, slots=3)
    stop = jnp.int32(30)
    found = jax.jit(jax.grad(lambda x, s: run(mine, x, s)))(x, stop) if at_run_time else jax.grad(
        lambda x: run(mine, x, 30))(x)  # fmt: skip
    assert_same(found, jax.grad(lambda x: run(lax.fori_loop, x, 30))(x))


@pytest.mark.parametrize("steps", [9, 15, 16])
@pytest.mark.parametrize("segments", [1, 2, 3, 4, 5, 7, 8, 16])
def test_a_product_in_segments_that_do_and_do_not_divide(steps, segments):
    with jax.enable_x64(True):
        run = lambda x: pj.fori_loop(0, steps, lambda i, y: y * (i + 1), x, schedule=pb.Periodic(steps, segments))  # noqa: E731
        value, slope = jax.value_and_grad(run)(1.0000001)
        assert float(slope) == math.factorial(steps)
        np.testing.assert_allclose(value, 1.0000001 * math.factorial(steps), rtol=1e-14)


def test_a_segment_of_one_at_the_end():
    x = jnp.array([0.3, 0.6, 0.9])
    schedule = pb.Periodic(10, 4)
    mine = jax.grad(lambda x: jnp.sum(pj.fori_loop(0, 10, lambda i, y: jnp.sin(y), x, schedule=schedule)))(x)
    assert_same(mine, jax.grad(lambda x: jnp.sum(lax.fori_loop(0, 10, lambda i, y: jnp.sin(y), x)))(x))


def test_carries_that_are_late_constant_integer_or_random():
    def run(loop):
        def loss(x, w):
            def body(i, carry):
                now, before, same, count, key = carry
                key, used = jax.random.split(key)
                new = jnp.sin(now * w) + 0.3 * before + 0.1 * same + 0.01 * count
                inner = loop(0, 3, lambda j, z: z * jnp.cos(w) + 0.01 * jax.random.normal(used) * j, new)
                return inner, now, same, count * 3 % 7, key

            init = (x, x * 0.5, x + 1, jnp.int32(2), jax.random.PRNGKey(3))
            out = loop(0, 8, body, init)
            return jnp.sum(out[0] + out[1] + out[2])

        return loss

    x = jnp.array([0.3, 0.6])
    mine = jax.grad(run(functools.partial(pj.fori_loop, slots=2)), (0, 1))(x, 1.1)
    assert_same(mine, jax.grad(run(lax.fori_loop), (0, 1))(x, 1.1))


def test_advances_are_fewer_than_with_the_midpoint_of_the_optimal_range():
    """What a loop with binomial progress by midpoints takes, counted by others, against what ours takes."""
    midpoint = {(50, 7): 111, (100, 3): 499, (400, 4): 2429, (500, 4): 3298, (1000, 10): 3641, (10, 3): 18, (5, 2): 9}
    for (steps, slots), theirs in midpoint.items():
        assert binomial.advances(steps, slots) + 1 <= theirs


def test_a_neural_differential_equation_against_diffrax():
    """Adaptive Tsit5 as a while_loop of unknown length; the gradient is that of diffrax's own adjoint."""
    weights = jnp.array(np.random.default_rng(1).normal(size=(2, 8, 8)) * 0.3, jnp.float32)
    start = jnp.linspace(-0.5, 0.5, 8)

    def field(t, y, w):
        return jnp.tanh(w[1] @ jnp.tanh(w[0] @ y)) - 0.1 * y

    solver, term = diffrax.Tsit5(), diffrax.ODETerm(field)
    control = diffrax.PIDController(rtol=1e-4, atol=1e-6)

    def ours(y, w):
        first = jnp.float32(0.05)

        def step(carry):
            t, dt, y = carry
            stop = jnp.minimum(t + dt, 2.0)
            solver_state = solver.init(term, t, stop, y, w)
            new, error, _, _, _ = solver.step(term, t, stop, y, w, solver_state, made_jump=False)
            scaled = jnp.sqrt(jnp.mean((error / (1e-6 + 1e-4 * jnp.maximum(jnp.abs(y), jnp.abs(new)))) ** 2))
            good = scaled <= 1.0
            factor = lax.stop_gradient(jnp.clip(0.9 * scaled**-0.2, 0.2, 5.0))
            return jnp.where(good, stop, t), dt * factor, jnp.where(good, new, y)

        return jnp.sum(pj.while_loop(lambda c: c[0] < 2.0, step, (jnp.float32(0), first, y), slots=4)[2] ** 2)

    def theirs(y, w):
        made = diffrax.diffeqsolve(
            term, solver, 0.0, 2.0, 0.05, y, w, stepsize_controller=control,
            adjoint=diffrax.RecursiveCheckpointAdjoint(), max_steps=256,
        )  # fmt: skip
        return jnp.sum(made.ys[-1] ** 2)

    mine, expected = jax.grad(ours, (0, 1))(start, weights), jax.grad(theirs, (0, 1))(start, weights)
    assert_same(mine, expected, rtol=2e-3)
