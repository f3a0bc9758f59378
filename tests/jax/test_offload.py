"""States that leave the device, and leaves that keep residuals."""

import time

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_common import PLAIN, START, TIMES, WEIGHTS, Calls, assert_same, recurrent

import pebbling.jax as pj
from pebbling import store
from pebbling.chain import binomial


def plain(x, w):
    return jnp.sum(lax.fori_loop(2, 25, lambda i, y: jnp.tanh(y @ w) + 0.01 * i, x))


def sent(x, w, **where):
    return jnp.sum(pj.offload_loop(2, 25, lambda i, y: jnp.tanh(y @ w) + 0.01 * i, x, segment=7, slots=2, **where))


def test_to_pinned_host_memory():
    for transformed in (
        lambda f: jax.grad(f, (0, 1)),
        lambda f: lambda *a: jax.jvp(f, a, a),
        lambda f: lambda *a: jax.jvp(jax.grad(f, (0, 1)), a, a),
    ):
        assert_same(jax.jit(transformed(sent))(START, WEIGHTS), transformed(plain)(START, WEIGHTS))


@pytest.mark.parametrize("make", [lambda path: store.Memory(), lambda path: store.Disk(path)], ids=["memory", "disk"])
def test_to_a_store(make, tmp_path):
    with make(tmp_path / "snapshots") as where:
        gradient = jax.jit(jax.grad(lambda x, w: sent(x, w, to=where), (0, 1)))
        for _ in range(2):
            assert_same(gradient(START, WEIGHTS), jax.grad(plain, (0, 1))(START, WEIGHTS))
        assert not where.keys()


def test_the_device_holds_the_slots_of_one_segment_only():
    state = jnp.ones((128, 128))
    with store.Memory() as where:
        run = lambda x: jnp.sum(  # noqa: E731
            pj.offload_loop(0, 400, lambda i, y: jnp.tanh(y) * 0.9, x, to=where, segment=20, slots=3)
        )
        made = jax.jit(jax.grad(run)).lower(state).compile()
        assert made.memory_analysis().temp_size_in_bytes <= 9 * state.nbytes
        started = time.perf_counter()
        jax.block_until_ready(made(state))
        moved = 2 * 20 * state.nbytes
        assert moved / (time.perf_counter() - started) > 1e6


def test_steps_with_a_store():
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y)

    with store.Memory() as where:
        run = jax.jit(jax.grad(lambda x: pj.offload_loop(0, 30, body, x, to=where, segment=10, slots=3)))
        assert calls.of(run, 0.5) == 30 + 3 * (binomial.advances(10, 3) + 1 + 10)


def test_where_to():
    with pytest.raises(ValueError, match="pinned_host"):
        pj.offload_loop(0, 5, lambda i, x: x, 1.0, to="nowhere")
    with pytest.raises(TypeError, match="floating-point"):
        pj.offload_loop(0, 5, lambda i, x: x, 1, to=store.Memory())


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
@pytest.mark.parametrize("leaf", [1, 4, 40])
def test_leaves_that_keep_residuals(leaf, policy):
    mine = recurrent(lambda f, init, xs: pj.scan(f, init, xs, slots=2, leaf=leaf, policy=policy))
    assert_same(jax.grad(mine, (0, 1, 2))(START, WEIGHTS, TIMES), jax.grad(PLAIN, (0, 1, 2))(START, WEIGHTS, TIMES))


@pytest.mark.parametrize("reverse", [False, True])
def test_leaves_in_both_directions(reverse):
    def run(scan, **more):
        body = lambda c, t: (jnp.sin(c) * t, c)  # noqa: E731
        return jax.grad(lambda x: sum(map(jnp.sum, scan(body, x, TIMES, reverse=reverse, **more))))(START)

    assert_same(run(pj.scan, slots=2, leaf=5), run(lax.scan))


def test_a_policy_is_for_leaves():
    with pytest.raises(ValueError, match="leaf="):
        pj.scan(lambda c, x: (c, None), 1.0, None, 5, policy=jax.checkpoint_policies.dots_saveable)


def test_leaves_save_evaluations():
    calls = Calls()

    def body(c, _):
        calls.mark(c)  # a callback that did not depend on the step would be taken out of the loop
        return jnp.sin(c), None

    def count(**more):
        return calls.of(jax.jit(jax.grad(lambda x: pj.scan(body, x, None, 120, slots=4, **more)[0])), 0.5)

    assert count(leaf=10) == 10 * (binomial.advances(12, 4) + 1) + 120 < count()


def test_jit_is_jit():
    assert_same(
        pj.jit(jax.grad(lambda x: jnp.sum(sent(x, WEIGHTS))))(START), jax.grad(lambda x: plain(x, WEIGHTS))(START)
    )
