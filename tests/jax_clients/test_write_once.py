"""Arrays that a loop only fills stay out of snapshots, and their gradients are right however they are filled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pebbling.jax as pj

STEPS, WIDTH = 60, 3
START = jnp.array([0.3, -0.2, 0.5])


def fill(write, read=None):
    """The sum of a nonlinear function of all that a loop wrote, with the loop left open."""

    def loss(loop, x, first):
        def body(c):
            i, x, ys = c
            x = jnp.sin(1.1 * x)
            if read is not None:
                x = x + read(ys, i)
            return i + 1, x, write(ys, i, x)

        _, x, ys = loop(lambda c: c[0] < STEPS, body, (0, x, first))
        return jnp.sum(jnp.cos(ys) * jnp.arange(ys.size).reshape(ys.shape)) + jnp.sum(x)

    return loss


FILLS = {
    "a row a step": fill(lambda ys, i, x: ys.at[i].set(x)),
    "a slice a step": fill(lambda ys, i, x: lax.dynamic_update_slice(ys, x[None], (i, 0))),
    "the same row twice": fill(lambda ys, i, x: ys.at[i // 2].set(x)),
    "rows that add up": fill(lambda ys, i, x: ys.at[i % 7].add(x)),
    "two rows at once": fill(lambda ys, i, x: ys.at[jnp.stack([i, STEPS - 1 - i])].set(jnp.stack([x, 2 * x]))),
    "only some steps": fill(lambda ys, i, x: jnp.where(i % 3 == 0, ys.at[i].set(x), ys)),
    "out of bounds": fill(lambda ys, i, x: ys.at[2 * i].set(x, mode="drop")),
    "linear reads": fill(lambda ys, i, x: ys.at[i].set(x), lambda ys, i: 0.1 * ys[i - 1]),
    "nonlinear reads": fill(lambda ys, i, x: ys.at[i].set(x), lambda ys, i: 0.1 * ys[i - 1] ** 2),
}


def known(loop):
    """A loop of a known length in place of a ``while_loop``."""
    return lambda _, body, init: loop(0, STEPS, lambda _, c: body(c), init)


LOOPS = {
    "while_loop": functools.partial(pj.while_loop, slots=4),
    "fori_loop": known(functools.partial(pj.fori_loop, slots=4)),
}
PLAIN = known(lax.fori_loop)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("loss", FILLS.values(), ids=FILLS)
def test_gradients_of_what_is_filled_are_those_of_plain_loops(loss, loop):
    first = jnp.ones((STEPS, WIDTH))
    found = jax.jit(jax.grad(functools.partial(loss, loop), argnums=(0, 1)))(START, first)
    expected = jax.jit(jax.grad(functools.partial(loss, PLAIN), argnums=(0, 1)))(START, first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def temporary(loop, slots, steps=STEPS):
    def loss(x):
        body = lambda c: (c[0] + 1, jnp.sin(c[1]), c[2].at[c[0]].set(c[1]))  # noqa: E731
        ys = loop(lambda c: c[0] < steps, body, (0, x, jnp.zeros((steps, x.size))), slots=slots)[2]
        return jnp.sum(ys**2)

    return jax.jit(jax.grad(loss)).lower(jnp.ones(128)).compile().memory_analysis().temp_size_in_bytes


def test_a_snapshot_holds_nothing_of_what_is_filled():
    state, filled = 128 * 4, STEPS * 128 * 4
    few, many = (temporary(pj.while_loop, slots) for slots in (4, 24))
    assert many - few <= 20 * state + 2048
    assert few <= 2 * filled + 8 * state + 2048


LANES = jnp.array([0, 7, STEPS // 2, STEPS])


@pytest.mark.parametrize("name", ["a slice a step", "rows that add up", "nonlinear reads"])
def test_batches_of_different_lengths_fill_as_each_would_alone(name):
    def loss(x, end):
        loop = lambda cond, body, init: pj.while_loop(lambda c: c[0] < end, body, init, slots=4)  # noqa: E731
        return FILLS[name](loop, x, jnp.ones((STEPS, WIDTH)))

    xs = jnp.stack([START] * 4)
    gradient = jax.jit(jax.grad(loss))
    alone = jnp.stack([gradient(x, end) for x, end in zip(xs, LANES)])
    for together in (jax.vmap(jax.grad(loss)), jax.grad(lambda xs, ends: jnp.sum(jax.vmap(loss)(xs, ends)))):
        np.testing.assert_allclose(jax.jit(together)(xs, LANES), alone, rtol=1e-4, atol=1e-4)


def test_a_batch_copies_no_array_that_it_fills():
    def filled(x, end):
        body = lambda c: (c[0] + 1, jnp.sin(c[1]), c[2].at[c[0]].set(c[1]))  # noqa: E731
        return pj.while_loop(lambda c: c[0] < end, body, (0, x, jnp.zeros((977, 3))), slots=4)[2]

    traced = str(jax.make_jaxpr(jax.vmap(filled))(jnp.ones((4, 3)), LANES))
    assert "scatter" in traced
    assert not [line for line in traced.splitlines() if "select_n" in line and "977" in line]


def test_buffers_are_promised_and_the_promise_is_checked():
    body = lambda c: (c[0] + 1, jnp.sin(c[1] + 0.1 * c[2][c[0] - 1] ** 2), c[2].at[c[0]].set(c[1]))  # noqa: E731
    run = functools.partial(pj.while_loop, lambda c: c[0] < STEPS, slots=4, buffers=lambda c: c[2])
    init = 0, START, jnp.zeros((STEPS, WIDTH))
    with pytest.raises(ValueError, match=r"buffers= names carry\[2\], and the gradient needs"):
        run(body, init)
    run(lambda c: (c[0] + 1, jnp.sin(c[1]), c[2].at[c[0]].set(c[1])), init)
