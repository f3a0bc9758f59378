"""Steps are counted while the compiled program runs: the number is the proven minimum."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_common import Calls, assert_same

import pebbling as pb
import pebbling.jax as pj
from pebbling.chain import binomial

CASES = [(1, 1), (1, 5), (2, 1), (7, 3), (23, 5), (23, 1), (23, 40), (100, 5), (300, 10)]


def offline(steps, slots):
    return binomial.advances(steps, slots) + 1 + steps if steps else 0


def plain(x, steps, lower=0):
    return lax.fori_loop(lower, lower + steps, lambda i, y: jnp.sin(y) * 1.1 + i * 0.01, x)


@pytest.mark.parametrize(("steps", "slots"), CASES)
def test_known_length(steps, slots):
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y) * 1.1 + i * 0.01

    gradient = jax.jit(jax.grad(lambda x: pj.fori_loop(0, steps, body, x, slots=slots)))
    assert calls.of(gradient, 0.7) == offline(steps, slots)
    assert_same(gradient(0.7), jax.jit(jax.grad(plain), static_argnums=1)(0.7, steps))


@pytest.mark.parametrize("slots", [1, 3, 5, 10, 40])
def test_length_and_bounds_known_at_run_time_only(slots):
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y) * 1.1 + i * 0.01

    gradient = jax.jit(jax.grad(lambda x, lower, n: pj.fori_loop(lower, lower + n, body, x, slots=slots)))
    for steps in (0, 1, 2, 7, 23, 100, 211):
        assert calls.of(gradient, 0.7, 4, steps) == offline(steps, slots)
        assert_same(gradient(0.7, 4, steps), jax.grad(plain)(0.7, steps, 4))
    assert gradient(0.7, 4, -3) == 1.0


@pytest.mark.parametrize("run", ["known", "counted"])
def test_evaluations_are_numbered_anew_where_there_are_many(run, monkeypatch):
    from pebbling.jax import engine

    monkeypatch.setattr(engine, "MOST_NUMBERED", 50)
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y) * 1.1 + i * 0.01

    gradient = jax.jit(jax.grad(lambda x, n: pj.fori_loop(0, 60 if run == "known" else n, body, x, slots=4)))
    assert calls.of(gradient, 0.7, 60) == offline(60, 4)
    assert_same(gradient(0.7, 60), jax.grad(plain)(0.7, 60))


def kernels_of_a_row(program):
    """How many operations the loop has that runs a row, its own two loops included, and the one that stores."""
    # From jax 0.12 on, a loop is called as a computation of its own.
    text = re.sub(r" call(\(.* to_apply=%while)", r" while\1", program.compile().as_text())
    inner = [part for part in text.split("\n\n") if not part.strip().startswith("ENTRY")]
    loops = [re.findall(r" = .* (fusion|copy|while|dynamic-[a-z-]+)\(", part) for part in inner]
    (row,) = [found for found in loops if found.count("while") == 2]
    return len(row)


@pytest.mark.parametrize("slots", [5, 10, 100])
def test_a_row_is_few_kernels(slots):
    """XLA runs a loop body of more than eight kernels as a graph on CPUs, which takes several times as long."""

    def loop(x, n):
        return jnp.sum(pj.fori_loop(0, n, lambda i, y: jnp.tanh(0.9 * y + 0.1), x, slots=slots))

    x = jnp.ones(256)
    assert kernels_of_a_row(jax.jit(jax.grad(lambda x: loop(x, 1000))).lower(x)) <= 7
    assert kernels_of_a_row(jax.jit(jax.grad(loop)).lower(x, 1000)) <= 8


def test_default_slots_advance_no_step_more_than_twice():
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y)

    assert calls.of(jax.grad(lambda x: pj.fori_loop(0, 100, body, x)), 0.7) == offline(100, binomial.default_slots(100))


def online_gradient(slots, calls):
    def step(carry):
        calls.mark()
        return carry[0] + 1, jnp.sin(carry[1]) * 1.1 + carry[0] * 0.01

    return jax.jit(jax.grad(lambda x, n: pj.while_loop(lambda c: c[0] < n, step, (0, x), slots=slots)[1]))


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 10, 32])
def test_unknown_length_follows_the_online_plan(slots):
    calls = Calls()
    gradient = online_gradient(slots, calls)
    for steps in (0, 1, 2, 9, 50, 200):
        assert calls.of(gradient, 0.7, steps) == (pb.Online(slots).ended(steps).cost.forwards if steps else 0)
        assert_same(gradient(0.7, steps), jax.grad(plain)(0.7, steps))


def test_unknown_length_takes_few_steps_more_than_the_optimum():
    for slots in (10, 32):
        ratios = [pb.Online(slots).ended(n).cost.forwards / offline(n, slots) for n in range(1, 1500, 7)]
        assert np.mean(ratios) <= 1.03
        assert max(ratios) <= 1.15


def test_the_online_plan_goes_on_past_its_table(monkeypatch):
    from pebbling.jax import greedy

    monkeypatch.setattr(greedy, "TABLE", 20)
    greedy.table.cache_clear()
    greedy.after_table.cache_clear()
    try:
        calls = Calls()
        gradient = online_gradient(10, calls)
        ratios = []
        for steps in (15, 40, 100, 217, 400):
            ratios.append(calls.of(gradient, 0.7, steps) / offline(steps, 10))
            assert_same(gradient(0.7, steps), jax.grad(plain)(0.7, steps))
        assert np.mean(ratios) <= 1.03
        assert max(ratios) <= 1.15
    finally:
        greedy.table.cache_clear()
        greedy.after_table.cache_clear()


def test_a_loop_of_unknown_length_does_not_keep_its_counters():
    def run(x, n):
        return pj.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 2, jnp.sin(c[1]), c[2]), (3, x, 0.5), slots=4)

    (eqn,) = [e for e in jax.make_jaxpr(run)(0.7, 20).eqns if e.primitive.name == "checkpointed_while"]
    assert eqn.params["sizes"][2] == 1
    assert [int(run(0.7, n)[0]) for n in (0, 3, 4, 20, 21)] == [3, 3, 5, 21, 21]
    lengths = jnp.array([0, 4, 21, 9])
    assert jax.vmap(lambda n: run(0.7, n)[0])(lengths).tolist() == [3, 5, 21, 9]
    assert float(run(0.7, 20)[2]) == 0.5


def test_second_order_counts_do_not_grow_with_the_steps():
    """A Hessian-vector product evaluates a step a bounded number of times as often as a gradient."""
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y) * 1.1

    def run(x):
        return pj.fori_loop(0, 100, body, x, slots=10)

    once = calls.of(jax.jit(jax.grad(run)), 0.7)
    assert calls.of(jax.jit(jax.grad(jax.grad(run))), 0.7) <= 4 * once
    assert calls.of(jax.jit(lambda x: jax.jvp(jax.grad(run), (x,), (x,))), 0.7) == once
    assert calls.of(jax.jit(lambda x: jax.jvp(run, (x,), (x,))), 0.7) == 100


def test_forward_only_costs_nothing_extra():
    calls = Calls()

    def body(i, y):
        calls.mark()
        return jnp.sin(y)

    assert calls.of(jax.jit(lambda x: pj.fori_loop(0, 50, body, x, slots=3)), 0.7) == 50


def test_the_number_of_slots_does_not_change_a_bit():
    def gradient(slots):
        step = lambda i, y: jnp.sin(3.0 * y) * 1.3 + 0.1 * i  # noqa: E731
        return jax.jit(jax.grad(lambda x: jnp.sum(pj.fori_loop(0, 40, step, x, slots=slots))))(jnp.linspace(0, 1, 64))

    everything = gradient(40)
    for slots in (1, 2, 5, 11):
        np.testing.assert_array_equal(gradient(slots), everything)
