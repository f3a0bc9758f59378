"""Functions that are made in one loop and use what another loop binds."""

import numpy as np
import pytest

import pebbling as pb

X = np.array([0.3, -0.2, 0.5])


def in_two_loops(x):
    for i in range(4):
        y = np.sin(x) + i
        x = x + 0.1 * sum(value * y[0] for value in x)
    for _ in range(3):
        y = x[:2] * 2
        scaled = (lambda u: u * np.sum(y))(x)
        x = x + 0.01 * scaled
    return np.sum(x) + np.sum(y)


def in_loops_inside_of_a_loop(x):
    for _ in range(3):
        for _ in range(2):
            x = (lambda u: np.sin(u) * x[0])(x)
        for _ in range(2):
            x = (lambda u: np.cos(u) + x)(x)
    return np.sum(x)


@pytest.mark.parametrize("f", [in_two_loops, in_loops_inside_of_a_loop])
def test_functions_of_loops_side_by_side_do_not_meet(f):
    np.testing.assert_array_equal(pb.grad(pb.checkpoint(slots=2)(f))(X), pb.grad(f)(X))


def test_a_function_made_between_loops_is_refused():
    def f(x):
        def scaled(u):
            return u * x

        for _ in range(3):
            x = scaled(np.sin(x))
        return np.sum(x)

    with pytest.raises(pb.SourceError, match="made outside of the loop uses it"):
        pb.checkpoint(f)


def test_a_function_made_around_an_inner_loop_is_refused():
    def f(x):
        for _ in range(3):

            def scaled(u):
                return u * x  # noqa: B023  # noqa: B023

            for _ in range(3):
                x = scaled(np.sin(x))
        return np.sum(x)

    with pytest.raises(pb.SourceError, match="made outside of the loop uses it"):
        pb.checkpoint(f)
