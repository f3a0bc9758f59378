"""The schedule that tapes runs of steps at once: what it holds, what it saves, and that a loop under it is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain import Mixed, Revolve, check, stream
from pebbling.loops import grad, hvp, loop
from pebbling.loops.runs import Runs


@given(st.integers(0, 120), st.integers(1, 12), st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.5]))
@settings(max_examples=200, deadline=None)
def test_its_actions_are_those_of_its_tree_and_cost_what_it_says(steps, slots, tape):
    plan = Runs(steps, slots, tape)
    assert list(plan) == list(stream.actions(plan))
    assert check(plan) == plan.cost
    assert plan.cost.peak <= slots
    assert plan.cost.forwards <= Revolve(steps, slots).cost.forwards


@pytest.mark.parametrize("slots", [2, 3, 5, 8, 16])
def test_with_tapes_like_states_it_is_close_to_the_optimum(slots):
    for steps in range(1, 150, 7):
        best = Mixed(steps, slots).cost.forwards
        assert best <= Runs(steps, slots).cost.forwards <= 1.05 * best + 1


@pytest.mark.parametrize("slots", [1, 2, 5, 40])
def test_gradients_and_products_under_it_are_those_of_the_binomial_plan(slots):
    x, a, v = np.random.default_rng(3).normal(size=(3, 6))

    def f(**options):
        return lambda x, a: np.sum(loop(lambda i, s, a: np.tanh(s * a) + s, x, 60, a, **options))

    plan = {"schedule": Runs(60, slots)}
    for found, expected in zip(grad(f(**plan), (0, 1))(x, a), grad(f(slots=slots), (0, 1))(x, a)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(hvp(f(**plan))(x, a, v), hvp(f(schedule=Revolve(60, slots)))(x, a, v))


def test_a_product_with_the_hessian_follows_it_where_tapes_are_small():
    """Fewer steps run than in the binomial plan of as many slots."""
    calls = 0

    def body(i, s):
        nonlocal calls
        calls += 1
        return np.tanh(1.01 * s + 0.1)

    x = np.linspace(0.1, 1.0, 5000)
    hvp(lambda s: np.sum(loop(body, s, 300, slots=8)))(x, x)
    measuring, twice_last = 2, 1
    assert calls == Runs(300, 8).cost.forwards + measuring + twice_last
    assert calls < Revolve(300, 8).cost.forwards
