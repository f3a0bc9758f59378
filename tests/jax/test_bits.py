"""A gradient has the same bits whatever the number of slots, also where XLA could round a replayed step otherwise.

It did for the first of these programs when a step was compiled in more forms than one; see also benchmarks/jax_bits.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pebbling.jax as pj

STEPS = 30
RANDOM = np.random.default_rng(0)
START = jnp.array(RANDOM.normal(size=40), jnp.float32)
WEIGHTS = jnp.array(RANDOM.normal(size=(40, 40)) * 0.14, jnp.float32)


def lorenz(c, t):
    d = jnp.roll(c, 1) * (jnp.roll(c, -1) - jnp.roll(c, 2)) - c + 8.0
    c = c + 0.02 * d
    return c, jnp.sum(c * c)


def leapfrog(c, t):
    f = -jnp.sin(3 * c[0]) * c[0] - c[0] ** 3 + jnp.mean(c[0])
    p = c[1] + 0.01 * f
    q = c[0] + 0.01 * p * jnp.exp(-0.01 * p * p)
    return (q, p), q * p + t


def gates(c, t):
    z = jax.nn.sigmoid(c @ WEIGHTS + t)
    return z * c + (1 - z) * jnp.tanh(c @ WEIGHTS * 0.5), z


def scanned(step, slots):
    def loss(x):
        last, ys = pj.scan(step, (x, x) if step is leapfrog else x, jnp.linspace(0, 1, STEPS), slots=slots)
        return sum(jnp.sum(a**2) for a in jax.tree.leaves(last)) + jnp.sum(jnp.sin(ys))

    return loss


def unbounded(step, slots):
    def loss(x):
        body = lambda c: (c[0] + 1, step(c[1], 0.1)[0])  # noqa: E731
        first = (x, x) if step is leapfrog else x
        last = pj.while_loop(lambda c: c[0] < STEPS, body, (jnp.int32(0), first), slots=slots)[1]
        return sum(jnp.sum(a**2) for a in jax.tree.leaves(last))

    return loss


@pytest.mark.parametrize(
    ("loop", "step"),
    [(scanned, lorenz), (scanned, gates), (unbounded, leapfrog)],
    ids=lambda f: f.__name__,
)
def test_bits_do_not_depend_on_the_slots(loop, step):
    found = [jax.jit(jax.value_and_grad(loop(step, slots)))(START)[1] for slots in (1, 5, STEPS - 1)]
    assert np.all(np.isfinite(found[0]))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
