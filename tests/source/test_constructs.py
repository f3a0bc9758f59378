"""Every construct of Python: a function with checkpointed loops gives what the plain one gives, to the last bit.

Each program is differentiated plainly, with a tape of everything, and through the transform, with few
slots, many, and a budget in bytes.
"""

from __future__ import annotations

import numpy as np
import pytest
from construct_programs import PROGRAMS

import pebbling as pb
from pebbling.source import checkpoint

RNG = np.random.default_rng(3)
X, A, B = RNG.normal(size=6), RNG.uniform(0.5, 0.9, size=6), RNG.normal(size=(4, 6)) * 0.3
OPTIONS = [
    {"slots": 1},
    {"slots": 2},
    {"slots": 3},
    {"slots": 40},
    {},
    {"memory": "1MiB"},
    {"slots": 2, "verify": "all"},
]


def given():
    return X.copy(), A.copy(), B.copy()


def same(one, two):
    assert type(one) is type(two) or np.shape(one) == np.shape(two)
    np.testing.assert_array_equal(np.asarray(one), np.asarray(two), strict=True)


def whole(function):
    """A function of one value, where a program gives several."""

    def total(x, a, b):
        value = function(x, a, b)
        return value[0] + value[1] if isinstance(value, tuple) else value

    return total


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_values_and_gradients_are_those_of_the_plain_function(function):
    plain = whole(function)
    value, grads = pb.value_and_grad(plain, (0, 1, 2))(*given())
    for options in OPTIONS:
        through = whole(checkpoint(**options)(function))
        same(through(*given()), plain(*given()))
        found, others = pb.value_and_grad(through, (0, 1, 2))(*given())
        same(found, value)
        for one, two in zip(others, grads):
            same(one, two)
