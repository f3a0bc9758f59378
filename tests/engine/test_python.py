"""What Python offers for numbers, with differentiated ones: math, isinstance, np.vectorize, iteration over elements."""

import math
from numbers import Number

import numpy as np
import pytest
from tests.engine.test_blank import differences

import pebbling as pb

U = np.array([0.7, 0.3, 0.52])
ONE = """
    sin cos tan asin acos atan sinh cosh tanh asinh atanh exp expm1 log log1p log2 log10 sqrt fabs erf erfc degrees
    radians
"""
TWO = {
    "pow": lambda a, b: math.pow(a, b),
    "atan2": lambda a, b: math.atan2(a, b),
    "log": lambda a, b: math.log(a, b),
    "copysign": lambda a, b: math.copysign(a, -b),
    "fmod": lambda a, b: math.fmod(a, b),
    "hypot": lambda a, b: math.hypot(a, b, 2.0),
    "fsum": lambda a, b: math.fsum([a, b, a * b]),
}


@pytest.mark.parametrize("name", ONE.split())
def test_functions_of_math(name):
    f = getattr(math, name)

    def of_vector(u):
        return getattr(math, name)(u[0]) * u[1]

    np.testing.assert_allclose(pb.grad(of_vector)(U), differences(of_vector, U), rtol=1e-6, atol=1e-8)
    value, _ = pb.value_and_grad(lambda x: getattr(math, name)(x))(0.6)
    assert value == f(0.6)
    assert getattr(math, name) is f
    h = 1e-5
    of_one = pb.grad(lambda x: getattr(math, name)(x))
    expected = (of_one(0.6 + h) - of_one(0.6 - h)) / (2 * h)
    assert pb.hvp(lambda x: getattr(math, name)(x))(0.6, 1.0) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name):
    def f(u):
        return TWO[name](u[0], u[1]) * u[2]

    assert pb.value_and_grad(f)(U)[0] == f(U)
    np.testing.assert_allclose(pb.grad(f)(U), differences(f, U), rtol=1e-6, atol=1e-8)


def test_isinstance_answers_for_what_a_traced_value_stands_for():
    def f(u):
        assert isinstance(u, np.ndarray)
        assert isinstance(u[0], Number)
        assert isinstance(np.zeros(3), np.ndarray)
        assert not isinstance(u, list)
        return np.sum(u**2)

    np.testing.assert_array_equal(pb.grad(f)(U), 2 * U)
    assert "isinstance" not in globals()


@np.vectorize
def kink(x, a):
    return a * x**2 if x > 0.5 else a * x + 1.0


def vectorized(u):
    return np.sum(kink(u, 2.0) * kink(0.3, u)) + kink(u[0], 1.0)


def over_elements(u):
    matrix, total = np.outer(u, u), 0.0
    for value in matrix.flat:
        total += np.sqrt(value)
    for value in np.nditer(matrix):
        total += value**2
    for (i, j), value in np.ndenumerate(matrix):
        total += i * j * value
    matrix.flat[::2] = u[0] ** 3
    matrix.T.flat[1] = 2.0
    return total + np.sum(matrix**2)


@pytest.mark.parametrize("f", [vectorized, over_elements])
def test_elements_one_by_one(f):
    np.testing.assert_allclose(pb.grad(f)(U), differences(f, U), rtol=1e-6)
    assert pb.value_and_grad(f)(U)[0] == f(U)
