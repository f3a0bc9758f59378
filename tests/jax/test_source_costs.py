"""What checkpointed plain loops cost on JAX: steps, bytes, the length of the program."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax_common import Calls, assert_same
from source_programs import W, X, breaks, checkpointed, one_after_another, over_a_range, until_it_settles, until_small

import pebbling as pb

CALLS = Calls()


def counting_to_a_break(x, limit):
    for _ in range(1000):
        CALLS.mark(x)
        x = x + 1.0
        if x[0] >= limit:
            break
        CALLS.mark(x)
    return jnp.sum(x)


def counting(x, n):
    for _ in range(n):
        CALLS.mark(x)
        x = jnp.sin(1.1 * x)
    return jnp.sum(x)


def counting_until(x, limit):
    while x[0] < limit:
        CALLS.mark(x)
        x = x + jnp.exp(-x) * 0 + 1.0
    return jnp.sum(x)


@pytest.mark.parametrize(("steps", "slots"), [(50, 7), (100, 5), (10, 3)])
def test_the_gradient_evaluates_the_step_as_often_as_the_best_schedule(steps, slots):
    g = jax.jit(jax.grad(functools.partial(checkpointed(counting, slots=slots), n=steps)))
    # One more than of a plan that gives no value: the sweep goes to the end.
    assert CALLS.of(g, X) == pb.Revolve(steps, slots).cost.forwards + 1


def test_a_while_loop_is_checkpointed_online():
    g = jax.jit(jax.grad(checkpointed(counting_until, slots=5)))
    assert CALLS.of(g, jnp.zeros(3), 100.0) == pb.Online(5).ended(100).cost.forwards


def test_a_loop_with_a_break_evaluates_each_half_of_its_step_as_often_as_the_online_plan():
    g = jax.jit(jax.grad(checkpointed(counting_to_a_break, slots=5)))
    forwards = pb.Online(5).ended(100).cost.forwards
    last = 2  # the second half of the last step runs neither in the sweep nor when the step is reversed
    assert CALLS.of(g, jnp.zeros(3), 100.0) == 2 * forwards - last


def smooth(x):
    for _ in range(500):
        x = jnp.tanh(x)
    return jnp.sum(x)


def temp(f, x):
    return jax.jit(jax.grad(f)).lower(x).compile().memory_analysis().temp_size_in_bytes


def test_the_program_holds_slots_and_not_steps():
    x = jnp.ones(4096)
    assert temp(checkpointed(smooth, slots=8), x) <= (8 + 3) * x.nbytes
    assert temp(checkpointed(smooth, schedule=pb.StoreAll(500)), x) >= 500 * x.nbytes


def test_memory_bounds_what_the_program_takes():
    x = jnp.ones(4096)
    assert temp(checkpointed(smooth, memory="400kB"), x) <= 400_000
    with pytest.raises(pb.BudgetError, match="at least"):
        jax.grad(checkpointed(smooth, memory="10kB"))(x)


def two_deep(x):
    for _ in range(20):
        y = x
        for _ in range(25):
            y = jnp.tanh(y)
        x = x + y
    return jnp.sum(x)


def test_memory_is_shared_with_inner_loops():
    x = jnp.ones(4096)
    gradient = jax.jit(jax.grad(checkpointed(two_deep, memory="300kB"))).lower(x).compile()
    assert 200_000 < gradient.memory_analysis().temp_size_in_bytes <= 300_000
    assert_same(gradient(x), jax.grad(two_deep)(x))


def long(x, n):
    s, k = 0.0, 0
    for i in range(n):
        x = jnp.sin(x) * i
        s = s + jnp.sum(x)
        k += 1
    while jnp.sum(x) > 1 and k < n:
        x = x / 2
        k += 1
    return s + jnp.sum(x)


def test_the_program_is_as_long_for_any_number_of_steps():
    def traced(n):
        return len(str(jax.make_jaxpr(functools.partial(checkpointed(long, slots=5), n=n))(X)).splitlines())

    assert traced(100) == traced(100_000)
    jaxprs = [jax.make_jaxpr(jax.grad(functools.partial(checkpointed(long, slots=5), n=n)))(X) for n in (300, 30_000)]
    assert len(jaxprs[0].eqns) == len(jaxprs[1].eqns) < 60


def test_a_schedule_is_followed():
    assert_same(jax.grad(checkpointed(over_a_range, schedule=pb.Periodic(17, 4)))(X, W), jax.grad(over_a_range)(X, W))
    with pytest.raises(ValueError, match="16 steps and the loop has 17"):
        jax.grad(checkpointed(over_a_range, schedule=pb.Revolve(16, 3)))(X, W)
    with pytest.raises(ValueError, match="Online"):
        jax.grad(checkpointed(over_a_range, schedule=pb.Online(3)))(X, W)
    assert_same(jax.grad(checkpointed(until_small, schedule=pb.Online(3)))(X, W), jax.grad(until_small)(X, W))
    with pytest.raises(ValueError, match="unknown length takes an Online schedule"):
        jax.grad(checkpointed(until_small, schedule=pb.Revolve(10, 3)))(X, W)
    with pytest.raises(ValueError, match="break may end takes an Online schedule"):
        jax.grad(checkpointed(until_it_settles, schedule=pb.Revolve(50, 3)))(X, W)


def test_explain_says_what_the_loops_will_take():
    text = str(pb.explain(checkpointed(one_after_another, slots=3), X, W))
    assert "steps        4 of 12 B each" in text
    assert f"forwards     {pb.Revolve(4, 3).cost.forwards + 1} with 3 slots" in text
    assert text.count("checkpointed yes") == 2
    loop = pb.explain(checkpointed(smooth, memory="400kB"), jnp.ones(4096)).loops[0]
    assert loop.steps == 500
    assert 300_000 < loop.peak <= 400_000
    calls = functools.partial(checkpointed(counting, slots=loop.slots), n=500)
    assert loop.forwards == CALLS.of(jax.jit(jax.grad(calls)), X)
    assert "as many as it takes" in str(pb.explain(until_small, X, W))
    assert "decides by a value" in str(pb.explain(breaks, X))
    assert "slots" not in str(pb.explain(breaks))


def test_verifying_is_nothing_to_do_or_refused():
    wanted = jax.grad(over_a_range)(X, W)
    for verify in ("last", False):
        assert_same(jax.grad(checkpointed(over_a_range, slots=3, verify=verify))(X, W), wanted)
    with pytest.raises(ValueError, match="compiled JAX program"):
        jax.grad(checkpointed(over_a_range, verify="all"))(X, W)
