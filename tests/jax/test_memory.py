"""XLA's own figures: what a gradient takes, and that a budget in bytes bounds it."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pebbling as pb
import pebbling.jax as pj

STATE = jnp.ones((256, 256))
WEIGHTS = jnp.eye(256) * 0.9
# Buffers are settled before LLVM sees the code.
QUICK = {"xla_backend_optimization_level": 0}


def temporary(f, *args, argnums=(0, 1)):
    return jax.jit(jax.grad(f, argnums)).lower(*args).compile(QUICK).memory_analysis().temp_size_in_bytes


def known(budget):
    return lambda x, w: jnp.sum(pj.fori_loop(0, 200, lambda i, y: jnp.tanh(y @ w), x, **budget))


def counted(budget):
    return lambda x, w, n: jnp.sum(pj.fori_loop(0, n, lambda i, y: jnp.tanh(y @ w), x, **budget))


def online(budget):
    def run(x, w):
        step = lambda c: (c[0] + 1, jnp.tanh(c[1] @ w))  # noqa: E731
        return jnp.sum(pj.while_loop(lambda c: c[0] < 200, step, (0, x), **budget)[1])

    return run


@pytest.mark.parametrize("slots", [1, 10])
def test_states_for_each_slot_and_three_more(slots):
    bound = (slots + 3) * STATE.nbytes + WEIGHTS.nbytes + 65536
    assert temporary(known({"slots": slots}), STATE, WEIGHTS) <= bound
    assert temporary(online({"slots": slots}), STATE, WEIGHTS) <= bound
    assert temporary(counted({"slots": slots}), STATE, WEIGHTS, 200) <= bound


@pytest.mark.parametrize("slots", [5, 32, 100])
def test_control_takes_little_room(slots):
    """Small states: beside three of them, what the plan of a loop of unknown length needs is a few numbers a slot."""
    x = jnp.ones(256)
    step = lambda y: jnp.tanh(0.9 * y + 0.1)  # noqa: E731
    forever = lambda x, n: pj.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[1])), (0, x), slots=slots)[1]  # noqa: E731
    counted = lambda x, n: pj.fori_loop(0, n, lambda i, y: step(y), x, slots=slots)  # noqa: E731
    for run in (forever, counted):
        found = temporary(lambda x, n, run=run: jnp.sum(run(x, n)), x, 1000, argnums=0)
        assert found <= (slots + 3) * x.nbytes + 1024 + 64 * slots


def test_memory_does_not_grow_with_the_steps_in_second_order():
    def second(steps):
        def run(x):
            return jnp.sum(pj.fori_loop(0, steps, lambda i, y: jnp.tanh(y) * 0.9, x, slots=5))

        reverse = lambda x: jnp.vdot(jax.grad(run)(x), x)  # noqa: E731
        forward = lambda x: jnp.sum(jax.jvp(jax.grad(run), (x,), (x,))[1])  # noqa: E731
        return [temporary(f, STATE, argnums=0) / STATE.nbytes for f in (reverse, forward)]

    short, long = second(50), second(400)
    assert long[0] <= short[0] + 1 <= 40
    assert long[1] <= short[1] + 1 <= 60


@pytest.mark.parametrize("states", [10, 40])
@pytest.mark.parametrize("run", [known, online])
def test_a_budget_in_bytes_bounds_what_xla_takes(run, states):
    budget = states * STATE.nbytes
    found = temporary(run({"memory": budget}), STATE, WEIGHTS)
    assert budget - 2 * STATE.nbytes <= found <= budget


def test_a_scan_with_inputs_and_outputs_in_a_budget():
    def run(x, w):
        xs = jnp.ones((50, 256))
        last, ys = pj.scan(lambda c, t: (jnp.tanh(c @ w + t), jnp.sum(c, 0)), x, xs, memory="8MiB")
        return jnp.sum(last) + jnp.sum(ys**2)

    assert temporary(run, STATE, WEIGHTS) <= 8 * 2**20


def test_enough_memory_is_plain_scan():
    f = known({"memory": "1GB"})
    plain = lambda x, w: jnp.sum(lax.fori_loop(0, 200, lambda i, y: jnp.tanh(y @ w), x))  # noqa: E731
    assert str(jax.make_jaxpr(jax.grad(f))(STATE, WEIGHTS)) == str(jax.make_jaxpr(jax.grad(plain))(STATE, WEIGHTS))


def test_too_little_names_the_smallest():
    with pytest.raises(pb.errors.BudgetError, match="at least") as caught:
        known({"memory": "100kB"})(STATE, WEIGHTS)
    least = int(caught.value.minimum)
    assert temporary(known({"memory": least}), STATE, WEIGHTS) <= least


def test_constants_that_do_not_move_cost_nothing():
    large = jnp.ones((256, 256, 16))
    run = lambda x: jnp.sum(pj.fori_loop(0, 50, lambda i, y: jnp.tanh(y * large[..., 0]), x, slots=3))  # noqa: E731
    assert temporary(run, STATE, argnums=0) <= 8 * STATE.nbytes
