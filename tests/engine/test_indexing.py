"""Whatever NumPy takes as an index gives the right derivative, in reading and in writing."""

import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_programs import Place, check

from pebbling.engine.numpy import grad, hvp

SEQUENCES = {
    "tuple": (0, 2),
    "range": range(0, 3, 2),
    "array.array": array.array("i", [0, 2]),
    "memoryview": memoryview(array.array("q", [0, 2])),
    "small integers": np.array([0, 2], np.uint8),
}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_programs_with_random_indices_agree_with_the_complex_step(seed):
    check(seed)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_of_integers_picks_elements(name):
    index = SEQUENCES[name]
    x = np.arange(6.0).reshape(2, 3)
    expected = np.zeros((2, 3))
    expected[:, [0, 2]] = 3 * x[:, [0, 2]] ** 2
    np.testing.assert_array_equal(grad(lambda x: np.sum(x[:, index] ** 3))(x), expected)

    def written(x):
        y = x * 1.0
        y[:, index] *= x[:, index]
        return np.sum(y)

    np.testing.assert_array_equal(grad(written)(x), np.where([True, False, True], 2 * x, 1))
    np.testing.assert_array_equal(hvp(written)(x, np.ones((2, 3))), [[2, 0, 2]] * 2)


def test_an_object_with_an_index_is_an_integer():
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(grad(lambda x: x[Place(-1)] ** 2 + x[np.array(0)] ** 2)(x), [2, 0, 6])


def test_an_index_may_change_after_its_use():
    def f(x):
        index, where, total = np.array([0, 1]), [0], 0.0
        for _ in range(2):
            total = total + np.sum(x[index] ** 2) + x[where][0] ** 3
            index += 1
            where[0] += 1
        return total

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(grad(f)(x), [2 + 3, 8 + 12, 6])


def test_of_several_writes_to_one_element_the_one_that_numpy_leaves_counts():
    index = np.asfortranarray([[0, 1], [1, 0]])
    for turn in (lambda v: v, np.transpose, lambda v: v[::-1]):

        def f(v, turn=turn):
            y = np.zeros_like(v[0])
            y[index] = turn(v * 1.0)
            return np.sum(y * np.array([1.0, 10.0]))

        v = np.arange(4.0).reshape(2, 2)
        along = np.array([[1.0, 2.0], [4.0, 8.0]])
        assert np.sum(grad(f)(v) * along) == f(v + along) - f(v)
