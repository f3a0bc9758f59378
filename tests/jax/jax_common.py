"""What the tests of compiled loops share: problems, their plain counterparts, and a way to compare."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pebbling.jax as pj

WEIGHTS = jnp.array(np.random.default_rng(0).normal(size=(4, 4)) * 0.4, jnp.float32)
START = jnp.array([0.3, -0.2, 0.5, 0.1], jnp.float32)
TIMES = jnp.linspace(0.0, 1.0, 17)


def recurrent(scan):
    """A scan with parameters, inputs, outputs and a counter in its carry."""

    def loss(x, weights, times):
        def body(carry, t):
            x, k = carry
            y = jnp.tanh(x @ weights + t)
            return (y, k + 1), jnp.sum(y * x)

        (x, k), ys = scan(body, (x, 0), times)
        return jnp.sum(x**2) + jnp.sum(jnp.sin(ys)) + 0.0 * k

    return loss


PLAIN = recurrent(lax.scan)


def ours(slots):
    return recurrent(functools.partial(pj.scan, slots=slots))


def assert_same(found, expected, rtol=2e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * (1e-3 + np.max(np.abs(b), initial=0))),
        found,
        expected,
    )


class Calls:
    """Counts how often a step runs, at run time."""

    def __init__(self):
        self.number = 0

    def mark(self, *values):
        jax.debug.callback(self._add, *values)

    def _add(self, *values):
        self.number += 1

    def of(self, f, *args):
        self.number = 0
        jax.block_until_ready(f(*args))
        jax.effects_barrier()
        return self.number
