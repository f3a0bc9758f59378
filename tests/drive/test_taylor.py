"""The Taylor test passes right gradients, and no wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbling import taylor_test

POINT = np.array([1.0, -2.0, 0.5])


def cubic(x):
    return (x**3).sum(), 3 * x**2


def test_a_right_gradient():
    taylor = taylor_test(cubic, POINT)
    assert taylor.passed
    assert len(taylor.orders) == len(taylor.sizes) - 1
    assert all(1.9 < order < 2.1 for order in taylor.orders)
    assert str(taylor).endswith("passed")
    assert len(str(taylor).splitlines()) == len(taylor.sizes) + 2


@given(st.floats(1e-3, 10).map(lambda by: 1 + by), st.integers(0, 2))
def test_a_wrong_gradient(factor, where):
    def wrong(x):
        value, gradient = cubic(x)
        gradient[where] *= factor
        return value, gradient

    taylor = taylor_test(wrong, POINT, direction=np.ones(3))
    assert not taylor.passed
    assert str(taylor).endswith("FAILED: the gradient does not match the function")


def test_linear_and_constant_functions_have_no_remainder():
    assert taylor_test(lambda x: (x.sum(), np.ones(3)), POINT).passed
    assert taylor_test(lambda x: (4.0, np.zeros(3)), POINT).passed
    assert not taylor_test(lambda x: (x.sum(), np.zeros(3)), POINT, direction=np.ones(3)).passed


def test_a_function_that_does_not_change_is_said_to_test_little():
    still = taylor_test(lambda x: (1.0, np.zeros(3)), np.ones(3))
    moving = taylor_test(lambda x: (x.sum(), np.ones(3)), np.ones(3))
    assert still.passed
    assert "tests little" in str(still)
    assert str(moving).endswith("passed")


def test_trees_and_leaves_that_do_not_count():
    def of_tree(s):
        return float((s["u"] ** 2).sum() + s["t"] ** 3), {"u": 2 * s["u"], "t": 3 * s["t"] ** 2, "n": None}

    point = {"u": POINT, "t": 1.5, "n": 7}
    assert taylor_test(of_tree, point).passed
    with pytest.raises(ValueError, match="direction has 1 leaves and point has 3"):
        taylor_test(of_tree, point, direction=np.ones(3))
