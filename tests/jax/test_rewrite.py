"""``checkpoint_loops``: every loop of a traced function."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_common import START, WEIGHTS, assert_same

import pebbling.jax as pj

TIMES = jnp.linspace(0.5, 1.0, 20)


def step(c):
    return jnp.tanh(WEIGHTS @ c)


def with_outputs(x):
    last, ys = lax.scan(lambda c, t: (step(c) + t, jnp.sum(c)), x, TIMES)
    return jnp.sum(last) + jnp.sum(ys**2)


def backwards(x):
    return jnp.sum(lax.scan(lambda c, t: (step(c) * t, None), x, TIMES, reverse=True)[0])


def counted(x):
    return jnp.sum(lax.fori_loop(3, 20, lambda i, c: step(c) + 0.01 * i, x))


def bounded_at_run_time(x):
    n = jnp.where(x[0] > -1e9, 20, 10)
    return jnp.sum(lax.fori_loop(3, n, lambda i, c: step(c) + 0.01 * i, x))


def nested(x):
    inner = lambda i, c: lax.fori_loop(0, 5, lambda j, d: step(d) + 0.01 * j * i, c)  # noqa: E731
    return jnp.sum(lax.fori_loop(0, 6, inner, x))


def behind_jit_and_cond(x):
    run = jax.jit(
        lambda x: lax.cond(x[0] > 0, lambda x: lax.fori_loop(0, 9, lambda i, c: step(c) + 0.1, x), jnp.sin, x)
    )
    return jnp.sum(run(x))


def batched(x):
    return jnp.sum(jax.vmap(lambda s: lax.fori_loop(0, 9, lambda i, c: step(c) * s, x))(jnp.arange(3.0)))


def until_small(x):
    return jnp.sum(lax.while_loop(lambda s: jnp.sum(s**2) > 1e-3, lambda s: 0.4 * step(s) + 0.5 * s, x))


def checkpointed(x):
    return jnp.sum(jax.checkpoint(counted)(x))


def gradient_inside(x):
    inner = jax.grad(lambda q: jnp.sum(jnp.cos(WEIGHTS @ q)))
    return jnp.sum(lax.fori_loop(0, 9, lambda i, c: c - 0.1 * inner(c), x))


CASES = {
    with_outputs: 1, backwards: 1, counted: 1, bounded_at_run_time: 1, nested: 2, behind_jit_and_cond: 1, batched: 1,
    until_small: 1, checkpointed: 1, gradient_inside: 1,
}  # fmt: skip


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_same_function_with_loops_replaced(f):
    g = pj.checkpoint_loops(f, slots=3)
    assert_same(g(START), f(START))
    assert len(g.report.replaced) == CASES[f]
    assert not g.report.left
    assert_same(jax.jit(jax.grad(g))(START), jax.jit(jax.jacfwd(f))(START))


@pytest.mark.parametrize("f", [with_outputs, nested, until_small], ids=lambda f: f.__name__)
def test_second_derivatives(f):
    g = pj.checkpoint_loops(f, slots=3)
    assert_same(jax.jit(jax.hessian(g))(START), jax.jit(jax.jacfwd(jax.jacfwd(f)))(START), rtol=1e-4)


def test_what_is_left_and_why():
    @jax.custom_jvp
    def own_rule(x):
        return lax.fori_loop(0, 9, lambda i, c: jnp.sin(c), x)

    own_rule.defjvp(lambda p, t: (own_rule(*p), t[0]))

    def noisy(i, c):
        jax.debug.callback(lambda: None)
        return jnp.sin(c)

    def f(x):
        a = lax.map(jnp.sin, x)
        b = lax.fori_loop(0, 2, lambda i, c: jnp.sin(c), x)
        c = lax.fori_loop(0, 9, noisy, x)
        return jnp.sum(a + b + c + own_rule(x))

    g = pj.checkpoint_loops(f)
    assert_same(g(START), f(START))
    text = str(g.report)
    for reason in ("no floating-point state", "shorter than min_steps=3", "effects Debug", "custom_jvp_call"):
        assert reason in text
    assert len(g.report.left) == 4
    assert "test_rewrite.py" in text
    assert_same(jax.grad(g)(START), jax.grad(f)(START))


def test_a_function_without_loops():
    g = pj.checkpoint_loops(lambda x, *, scale=2.0: {"y": x * scale})
    assert_same(g(START, scale=3.0), {"y": 3 * START})
    assert str(g.report) == "no loops"


def test_memory_falls():
    def long(x):
        return jnp.sum(lax.fori_loop(0, 500, lambda i, c: jnp.tanh(c) * 0.9, x))

    def temporary(f):
        return jax.jit(jax.grad(f)).lower(jnp.ones(4096)).compile().memory_analysis().temp_size_in_bytes

    assert temporary(pj.checkpoint_loops(long, slots=5)) < temporary(long) / 50
