"""``pebbling.jax.equinox`` in place of ``equinox.internal``, ``nested_checkpoint_scan`` in place of nested scans."""

import functools

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pebbling.jax as pj
from pebbling.jax import equinox as ours

STEPS = 20
X = jnp.array([0.3, -0.2, 0.5])


def same(one, two):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), one, two)


def filled(loops, x, end):
    """Fills buffers, in a loop and in one inside it, at some of the steps."""

    def body(c):
        i, x, ys, zs = c
        x = jnp.sin(1.3 * x)
        ys = ys.at[i].set(x, pred=i % 2 == 0)

        def inside(c):
            k, zs = c
            return k + 1, eqxi.buffer_at_set(zs, (i, k), x[k] * 2)

        inner = functools.partial(loops.while_loop, kind="checkpointed", checkpoints=3, max_steps=3)
        _, zs = inner(lambda c: c[0] < 2, inside, (0, zs), buffers=lambda c: c[1])
        return i + 1, x, ys, zs

    init = 0, x, jnp.ones((STEPS, 3)), jnp.ones((STEPS, 3))
    run = functools.partial(loops.while_loop, kind="checkpointed", checkpoints=4, max_steps=STEPS)
    _, x, ys, zs = run(lambda c: c[1][0] + c[0] < end, body, init, buffers=lambda c: (c[2], c[3]))
    return jnp.sum(x) + jnp.sum(jnp.cos(ys) + jnp.sin(zs) * jnp.arange(3.0))


def test_buffers_in_batches():
    ends = jnp.array([0.0, 7.0, 100.0])
    one, two = (functools.partial(filled, loops) for loops in (ours, eqxi))
    same(*(jax.jit(jax.vmap(jax.grad(f), (None, 0)))(X, ends) for f in (one, two)))
    same(*(jax.jit(jax.grad(lambda x, f=f: jnp.sum(jax.vmap(f, (None, 0))(x, ends))))(X) for f in (one, two)))


def test_a_scan_with_buffers_and_a_scan_that_keeps_all():
    def total(loops, x, checkpoints):
        def body(c, t):
            x, ys = c
            x = jnp.sin(x + t[0])
            return (x, ys.at[t[1].astype(int)].set(x)), x * t[0]

        rows = jnp.stack([jnp.linspace(0.0, 1.0, STEPS), jnp.arange(STEPS, dtype=float)], 1)
        run = functools.partial(loops.scan, kind="checkpointed", checkpoints=checkpoints)
        (_, ys), zs = run(body, (x, jnp.zeros((STEPS, 3))), rows, buffers=lambda c: c[1])
        return jnp.sum(ys**2) + jnp.sum(zs**3)

    expected = jax.grad(functools.partial(total, eqxi, checkpoints=5))(X)
    for checkpoints in (5, "all"):
        same(jax.grad(functools.partial(total, ours, checkpoints=checkpoints))(X), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoints": 0}, "at least one"),
        ({}, "max_steps= or checkpoints="),
        ({"checkpoints": 2, "max_steps": jnp.int32(3)}, "Python integer"),
        ({"checkpoints": 2, "buffers": lambda c: jnp.ones(2)}, "must pick arrays"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        ours.while_loop(lambda c: c < 3.0, lambda c: c + 1, 0.0, kind="checkpointed", **change)


def test_other_kinds_are_those_of_equinox():
    for kind in ("lax", "bounded"):
        found = ours.while_loop(lambda c: c < 3.0, lambda c: c + 1, 0.0, kind=kind, max_steps=9)
        assert float(found) == 3.0


def steps_run(total):
    """How often a gradient evaluates a step."""
    count = []
    jax.block_until_ready(jax.jit(jax.grad(functools.partial(total, seen=lambda _: count.append(1))))(X))
    jax.effects_barrier()
    return len(count)


def test_nested_scans_are_replaced_by_fewer_steps_in_their_memory():
    lengths = (4, 4, 4)

    def total(x, run, seen=None):
        def body(c, t):
            if seen is not None:
                jax.debug.callback(seen, t)
            return jnp.sin(c + t), jnp.sum(c)

        last, ys = run(body, x, jnp.linspace(0.0, 1.0, 64))
        return jnp.sum(last) + jnp.sum(ys**2)

    def nested(body, x, rows, left=lengths):
        if len(left) == 1:
            return lax.scan(body, x, rows)
        turn = jax.checkpoint(lambda c, r: nested(body, c, r, left[1:]))
        last, ys = lax.scan(turn, x, rows.reshape(left[0], -1))
        return last, ys.reshape(-1)

    one = functools.partial(total, run=functools.partial(pj.nested_checkpoint_scan, nested_lengths=lengths))
    two = functools.partial(total, run=nested)
    same(jax.grad(one)(X), jax.grad(two)(X))
    assert steps_run(one) < steps_run(two)
    wide = jnp.ones(5000)
    taken = [jax.jit(jax.grad(f)).lower(wide).compile().memory_analysis().temp_size_in_bytes for f in (one, two)]
    assert taken[0] <= 1.01 * taken[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nested_lengths": (4, 3)}, "make 12 steps, and length is 16"),
        ({"nested_lengths": (4, 4), "scan_fn": pj.scan}, "scan_fn"),
        ({"nested_lengths": (4, 4), "checkpoint_fn": lambda f: f}, "checkpoint_fn"),
    ],
)
def test_what_nesting_alone_means_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        pj.nested_checkpoint_scan(lambda c, t: (c, t), 0.0, jnp.ones(16), 16, **change)
