"""A budget for a whole program bounds what XLA takes for it: several loops, nested, batched, differentiated twice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pebbling as pb
import pebbling.jax as pj
from pebbling.jax.division import divide, loads, total_cost

X, W = jnp.full((64, 16), 0.3), jnp.eye(16) * 0.9


def step(w):
    return lambda i, y: jnp.tanh(y @ w)


def one(x, w):
    return jnp.sum(lax.fori_loop(0, 300, step(w), x))


def two(x, w):
    y = jnp.sin(lax.fori_loop(0, 100, step(w), x))
    return jnp.sum(lax.scan(lambda c, _: (jnp.sin(c @ w), None), y, None, 200)[0])


def nested(x, w):
    outer = lambda c, _: (lax.fori_loop(0, 15, step(w), c) + jnp.sin(c), None)  # noqa: E731
    return jnp.sum(lax.scan(outer, x, None, 20)[0])


def with_work_outside(x, w):
    for _ in range(4):
        x = jnp.sin(jnp.tile(x, (1, 16)) @ jnp.ones((256, 256)))[:, :16]
    return one(x, w)


def with_inputs_and_outputs(x, w):
    last, ys = lax.scan(lambda c, t: (jnp.tanh(c @ w + t), jnp.sum(c)), x, jnp.ones((500, 16)) * w[0, 0])
    return jnp.sum(last) + jnp.sum(ys**2)


def gradient(f):
    return jax.grad(f, (0, 1))


def value_too(f):
    return jax.value_and_grad(f, (0, 1))


def batch(f):
    run = jax.vmap(gradient(f), in_axes=(0, None))
    return lambda x, w: run(jnp.stack([x] * 4), w)


def forward_over_reverse(f):
    return lambda x, w: jax.jvp(gradient(f), (x, w), (x, w))[1]


def reverse_over_reverse(f):
    return jax.grad(lambda x, w: jnp.vdot(jax.grad(f)(x, w), x), (0, 1))


CASES = [
    (two, value_too), (nested, gradient), (with_work_outside, gradient), (one, batch), (nested, forward_over_reverse),
    (one, reverse_over_reverse),
]  # fmt: skip
SEEN = [(two, value_too), (one, batch), (nested, forward_over_reverse), (with_inputs_and_outputs, gradient)]


def temporary(f, *args):
    lowered = f.lower(*args) if hasattr(f, "lower") else jax.jit(f).lower(*args)
    return lowered.compile({"xla_backend_optimization_level": 0}).memory_analysis().temp_size_in_bytes


@functools.lru_cache
def least(f, mode):
    with pytest.raises(pb.BudgetError, match=r"the rest, .* is what the program takes besides") as caught:
        pj.jit(mode(pj.checkpoint_loops(f)), memory=1000).lower(X, W)
    return int(caught.value.minimum)


@pytest.mark.parametrize(("f", "mode"), CASES, ids=lambda f: f.__name__)
def test_the_budget_of_a_program_bounds_it_and_its_minimum_works(f, mode):
    minimum = least(f, mode)
    smallest = temporary(pj.jit(mode(pj.checkpoint_loops(f)), memory=minimum), X, W)
    larger = temporary(pj.jit(mode(pj.checkpoint_loops(f)), memory=2 * minimum), X, W)
    assert 0.99 * minimum <= smallest <= minimum
    assert smallest < larger <= 2 * minimum


@pytest.mark.parametrize(("f", "mode"), SEEN, ids=lambda f: f.__name__)
def test_the_budget_of_a_function_bounds_it_with_its_derivatives(f, mode):
    budget = 2 * least(f, mode)
    found = temporary(mode(pj.checkpoint_loops(f, memory=budget)), X, W)
    assert 0.35 * budget <= found <= budget


def test_numbers_are_those_of_plain_loops_and_planned_once():
    traced = []

    def counted(x, w):
        traced.append(None)
        return two(x, w)

    run = pj.value_and_grad(counted, (0, 1), memory=2 * least(two, value_too))
    found, number = run(X, W), len(traced)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, jax.jit(value_too(two))(X, W))
    jax.tree.map(np.testing.assert_array_equal, run(X + 0, W), found)
    assert len(traced) == number
    with pytest.raises(pb.BudgetError):  # four times as large
        run(jnp.concatenate([X] * 4), W)


def test_enough_memory_is_the_plain_program():
    run = pj.grad(two, (0, 1), memory="1GB")
    assert "checkpointed" not in str(run.trace(X, W).jaxpr)
    np.testing.assert_array_equal(run(X, W)[0], jax.jit(gradient(two))(X, W)[0])


def test_loops_of_their_own_budget_keep_it_and_are_named():
    def mixed(x, w):
        return one(x, w) + jnp.sum(pj.fori_loop(0, 300, step(w), x, slots=40))

    fixed = pj.jit(jax.grad(lambda x, w: jnp.sum(pj.fori_loop(0, 300, step(w), x, slots=40))), memory=9000)
    with pytest.raises(pb.BudgetError, match="slots or schedules of their own"):
        fixed.lower(X, W)
    with pytest.raises(pb.BudgetError, match="no loop in it is one of pebbling's: wrap the function in checkpoint_loo"):
        pj.jit(jax.grad(one), memory=9000).lower(X, W)
    run = pj.jit(jax.grad(pj.checkpoint_loops(mixed)), memory=60 * X.nbytes)
    assert 55 * X.nbytes <= temporary(run, X, W) <= 60 * X.nbytes


def test_a_budget_for_static_arguments_donated_ones_and_parts_of_programs():
    def f(x, w, n):
        return jnp.sum(lax.fori_loop(0, n, step(w), x))

    run = pj.jit(lambda x, w, n: jax.grad(pj.checkpoint_loops(f))(x, w, n), memory="50kB", static_argnums=2)
    assert temporary(run, X, W, 200) <= 50_000
    assert run(X, W, 200).shape == run(X, W, 100).shape == X.shape
    inside = jax.jit(jax.grad(lambda x, w: pj.jit(one, memory="60kB")(x, w)))
    assert temporary(inside, X, W) <= 60_000
    with pytest.raises(pb.BudgetError, match="takes at least"):
        jax.jit(jax.grad(lambda x, w: pj.jit(one, memory="6kB")(x, w))).lower(X, W)


class TestWhatCannotBeSeen:
    """Between a loop and a transformation there may be a ``jit``; then the budget is refused and not exceeded."""

    within = staticmethod(jax.jit(jax.grad(pj.checkpoint_loops(one, memory="60kB"))))

    def test_a_batch(self):
        with pytest.raises(pb.BudgetError, match=r"planned for snapshots of .*pebbling\.jax\.jit\(f, memory"):
            jax.jit(jax.vmap(self.within, in_axes=(0, None))).lower(jnp.stack([X] * 4), W)

    def test_a_derivative(self):
        with pytest.raises(pb.BudgetError, match="planned for snapshots of"):
            jax.jit(lambda x, w: jax.jvp(self.within, (x, w), (x, w))).lower(X, W)

    def test_two_reverse_derivatives(self):
        with pytest.raises(ValueError, match=r"two reverse derivatives.*pebbling\.jax\.jit"):
            jax.jit(reverse_over_reverse(pj.checkpoint_loops(one, memory="60kB"))).lower(X, W)


def test_the_division_is_the_best_of_all():
    """Against all pairs of numbers of slots, of a program with two loops."""
    found = loads(pj.jit(gradient(pj.checkpoint_loops(two)), memory=10**5).trace(X, W).jaxpr.jaxpr)
    assert [load.bytes for load in found.values()] == [X.nbytes, X.nbytes]
    sites = list(found)
    for states in (3, 10, 40, 100):
        slots = divide(found, states * X.nbytes)
        assert sum(s - 1 for s in slots.values()) <= states
        pairs = [(a, states + 2 - a) for a in range(1, states + 2)]
        best = min(total_cost(found, dict(zip(sites, pair))) for pair in pairs)
        assert total_cost(found, slots) <= 1.02 * best
