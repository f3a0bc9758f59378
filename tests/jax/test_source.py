"""``@pebbling.checkpoint`` on JAX arrays: every plain Python loop is a checkpointed loop of one compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_common import assert_same
from source_programs import (
    FOR_LOOPS,
    LEFT_LOOPS,
    WHILE_LOOPS,
    W,
    X,
    checkpointed,
    collected,
    containers,
    forever,
    hands_on_a_numpy_array,
    in_place,
    left_behind,
    several_names,
    two_exits_of_an_object,
    until_it_settles,
    until_small,
    with_a_counter,
)

import pebbling as pb


@pytest.mark.parametrize("f", [*FOR_LOOPS, *WHILE_LOOPS, *LEFT_LOOPS], ids=lambda f: f.__name__)
def test_value_and_gradient_are_those_of_the_plain_function(f):
    wanted = jax.value_and_grad(f, (0, 1))(X, W)
    assert_same(jax.jit(jax.value_and_grad(checkpointed(f), (0, 1)))(X, W), wanted)


@pytest.mark.parametrize("f", [containers, collected, until_small], ids=lambda f: f.__name__)
def test_without_jit(f):
    assert_same(jax.value_and_grad(checkpointed(f, slots=2), (0, 1))(X, W), jax.value_and_grad(f, (0, 1))(X, W))


def test_plain_arrays_run_as_plain_python():
    seen = []

    def look(x, w):
        for i in range(3):
            x = jnp.sin(w @ x) + seen_index(i)
        return jnp.sum(x)

    def seen_index(i):
        seen.append(type(i))
        return i

    assert_same(checkpointed(look)(X, W), look(X, W))
    assert seen == [int] * 6


@pytest.mark.parametrize("f", [several_names, left_behind, with_a_counter, forever], ids=lambda f: f.__name__)
def test_double_precision(f):
    with jax.enable_x64(True):
        x, w = jnp.asarray(np.asarray(X, np.float64)), jnp.asarray(np.asarray(W, np.float64))
        wanted = jax.value_and_grad(f, (0, 1))(x, w)
        found = jax.jit(jax.value_and_grad(checkpointed(f), (0, 1)))(x, w)
        assert_same(found, wanted, rtol=1e-12)
        assert [a.dtype for a in jax.tree.leaves(found)] == [a.dtype for a in jax.tree.leaves(wanted)]
        single = jax.eval_shape(jax.grad(checkpointed(f)), X, W)
        assert single.dtype == np.float32


@pytest.mark.parametrize("f", [collected, in_place], ids=lambda f: f.__name__)
def test_transformations_are_those_of_the_plain_function(f):
    g = checkpointed(f)
    v = jnp.array([1.0, -0.5, 0.25])
    assert_same(jax.jvp(lambda x: g(x, W), (X,), (v,)), jax.jvp(lambda x: f(x, W), (X,), (v,)))
    assert_same(jax.jit(jax.hessian(g))(X, W), jax.hessian(f)(X, W), rtol=1e-4)
    xs = jnp.stack([X, 2 * X, -X])
    batched = jax.jit(jax.vmap(jax.grad(g), (0, None)))(xs, W)
    assert_same(batched, jax.vmap(jax.grad(f), (0, None))(xs, W))


def test_a_while_loop_in_a_batch_stops_for_each_member():
    xs = jnp.stack([X, 4 * X, 0.1 * X])
    found = jax.jit(jax.vmap(jax.grad(checkpointed(until_small)), (0, None)))(xs, W)
    assert_same(found, jnp.stack([jax.grad(until_small)(x, W) for x in xs]))
    v = jnp.array([1.0, -0.5, 0.25])
    assert_same(
        jax.jvp(lambda x: checkpointed(until_small)(x, W), (X,), (v,)),
        jax.jvp(lambda x: until_small(x, W), (X,), (v,)),
    )


def test_bounds_may_be_traced():
    def f(x, start, stop):
        y = x
        for i in range(start, stop, 2):
            y = jnp.sin(y) + 0.01 * i
        for _ in range(stop):
            y = y * 1.1
        return jnp.sum(y)

    found = jax.jit(jax.value_and_grad(checkpointed(f)))
    for bounds in [(3, 12), (0, 7), (5, 5), (9, 2)]:
        assert_same(found(X, *bounds), jax.value_and_grad(f)(X, *bounds))

    def last(x, n):
        r = 0.0
        for i in range(n):
            r = jnp.sum(x) * i
            x = jnp.sin(x)
        return r + jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(last)))
    for n in (0, 1, 6):
        assert_same(found(X, n), jax.value_and_grad(last)(X, n))

    def down(x, n):
        for i in range(n, 2, -3):
            x = jnp.sin(x) * i
        return jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(down)))
    for n in (17, 3, 2, -4):
        assert_same(found(X, n), jax.value_and_grad(down)(X, n))


def test_a_break_may_come_at_any_step():
    found = jax.jit(jax.value_and_grad(checkpointed(two_exits_of_an_object), (0, 1)))
    for x in (X, 3 * X, 0.2 * X, -X):
        assert_same(found(x, W), jax.value_and_grad(two_exits_of_an_object, (0, 1))(x, W))
    xs = jnp.stack([X, 2 * X, 0.1 * X])
    batched = jax.jit(jax.vmap(jax.grad(checkpointed(until_it_settles)), (0, None)))(xs, W)
    assert_same(batched, jnp.stack([jax.grad(until_it_settles)(x, W) for x in xs]))


def test_a_break_in_a_range_of_traced_bounds():
    def f(x, n):
        for i in range(n):
            x = jnp.sin(x) + 0.01 * i
            if x[0] > 0.35:
                break
        return jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(f)))
    for n in (0, 3, 20):
        assert_same(found(X, n), jax.value_and_grad(f)(X, n))


def test_arrays_are_unlocked_again():
    table = np.ones(3)

    def f(x):
        for _ in range(3):
            x = x * table
        return jnp.sum(x)

    jax.grad(checkpointed(f))(X)
    with pytest.raises(pb.SourceError):
        jax.grad(checkpointed(hands_on_a_numpy_array))(X)
    table[0] = 2.0
    assert table[0] == 2.0
