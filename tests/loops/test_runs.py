"""A loop under the schedule that tapes runs of steps at once."""

from __future__ import annotations

import numpy as np
import pytest

from pebbling.chain import Revolve, Runs
from pebbling.numpy import grad, hvp, loop


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
