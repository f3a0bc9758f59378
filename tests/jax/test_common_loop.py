"""``pebbling.loop`` on JAX arrays is the compiled loop of ``pebbling.jax``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pebbling as pb

X = jnp.array([0.5, 1.0])


def step(i, s, a):
    return jnp.sin(a * s) + 0.01 * i


@pytest.mark.parametrize("steps", [0, 1, 19, range(3, 60, 3), range(9, -9, -2)])
def test_the_gradient_is_that_of_the_plain_loop(steps):
    def checkpointed(x, a):
        return jnp.sum(pb.loop(step, x, steps, a, slots=3))

    def plain(x, a):
        for i in steps if isinstance(steps, range) else range(steps):
            x = step(i, x, a)
        return jnp.sum(x)

    with jax.enable_x64(True):
        x = jnp.asarray(np.array([0.5, 1.0]))
        for found, wanted in zip(jax.grad(checkpointed, (0, 1))(x, 1.1), jax.grad(plain, (0, 1))(x, 1.1)):
            np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_a_predicate_ends_the_loop():
    def f(x):
        return jnp.sum(pb.loop(lambda i, s: s * 1.5, x, lambda s, i: jnp.sum(s) < 9, slots=3))

    np.testing.assert_allclose(jax.grad(f)(X), 1.5**5 * np.ones(2), rtol=1e-6)
    assert f(X) == np.float32(1.5**6)


def test_the_program_holds_slots_and_not_steps():
    def temp(**budget):
        f = jax.grad(lambda x: jnp.sum(pb.loop(lambda i, s: jnp.tanh(s), x, 500, **budget)))
        return jax.jit(f).lower(jnp.ones(4096)).compile().memory_analysis().temp_size_in_bytes / 16384

    assert temp(slots=8) <= 8 + 3
    assert temp(schedule=pb.StoreAll(500)) >= 500


def test_verifying_every_state_is_refused():
    with pytest.raises(ValueError, match="compiled JAX program"):
        pb.loop(lambda i, s: s, X, 3, verify="all")
