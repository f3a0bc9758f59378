"""A refusal reaches the user though the program, or NumPy, takes it for an error of its own."""

import contextlib

import numpy as np
import pytest

from pebbling.engine.numpy import grad
from pebbling.errors import SourceError

X = np.linspace(0.3, 1.1, 100)


def test_a_write_into_a_locked_array_is_refused_though_the_program_goes_on_without_it():
    a = np.ones(100)

    def f(x):
        y = x * a
        with contextlib.suppress(ValueError):
            a[0] = 5.0
        return np.sum(y * a)

    with pytest.raises(SourceError, match=r"a\[0\] = 5.0\n.*read-only.*write into a copy"):
        grad(f)(X)


def test_a_write_into_a_read_only_array_of_the_program_is_its_own_affair():
    def f(x):
        a = np.broadcast_to(1.0, 100)
        try:
            a[0] = 5.0
        except ValueError:
            return np.sum(x * 2)
        return np.sum(x)

    np.testing.assert_array_equal(grad(f)(X), np.full(100, 2.0))


def test_what_has_no_derivative_is_refused_though_the_program_catches_everything():
    def f(x):
        try:
            return np.sum(np.frexp(x)[0])
        except:  # noqa: E722
            return np.sum(x)

    with pytest.raises(SourceError, match="frexp"):
        grad(f)(np.diag(X[:3]))


def test_an_assignment_of_a_traced_number_is_right_or_refused_though_the_program_ends_with_it():
    def f(x):
        y, i = np.ones(4), 0
        while i < 5:
            i += 1
            try:
                y[0] = x[0]
            except (TypeError, ValueError):
                break
        return np.sum(y) + np.sum(x)

    try:
        assert grad(f)(X)[0] == 2
    except SourceError as refusal:
        assert "y[0] = x[0]" in str(refusal)  # noqa: PT017
