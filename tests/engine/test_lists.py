"""Lists of traced values given to functions of NumPy, and code that works on one number at a time."""

import math

import numpy as np
import pytest

import pebbling as pb
from pebbling.numpy import jvp

AT = np.array([0.7, 0.3, 0.5])


def by_complex_step(f):
    return np.array([f(AT + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)])


REAL = {
    "convolve": lambda p: np.sum(np.convolve(np.arange(4.0), [p[0], 2.0, p[1] * p[2]]) ** 2),
    "two rows": lambda p: np.sum(np.cumprod([p, p * p], axis=0)),
    "by name": lambda p: np.sum(np.trapezoid(y=[p[0], p[1] ** 2, p[2]], x=[0.0, 1.0, 3.0])),
    "times a window": lambda p: np.sum(([p[0], p[1], p[2]] * np.hanning(3)) ** 2),
    "minus a row": lambda p: np.sum(([p[0], p[1]] - np.ones(2)) ** 3) + np.sum(np.ones(2) / [p[0], p[2]]),
    "rows of numbers": lambda p: np.sum(np.array([p[0] * p[1], 2, p[2] / p[1]]) @ np.array([[p[0]], [1.0], [p[1]]])),
    "matrix": lambda p: np.sum((np.arange(9.0).reshape(3, 3) @ p) ** 2 * np.array([p[2], 1.0, p[0]])),
    "numbers": lambda p: (p[0] - 2) / (p[1] + p[0] * 3) * (1 - p[2]) - 3 / p[2] + (p[0] - p[1]) * (2 * p[2]) / p[0],
}


@pytest.mark.parametrize("name", REAL)
def test_gradients_by_the_complex_step(name):
    value, gradient = pb.value_and_grad(REAL[name])(AT.copy())
    assert value == REAL[name](AT)
    np.testing.assert_allclose(gradient, by_complex_step(REAL[name]), rtol=1e-13)
    pushed = [jvp(REAL[name], (AT.copy(),), (unit,))[1] for unit in np.eye(3)]
    np.testing.assert_allclose(gradient, np.reshape(pushed, 3), rtol=1e-13)


def test_roots_of_a_list():
    gradient = pb.grad(lambda p: np.sum(np.abs(np.roots([1.0, p[0], p[1], p[2]]))))(AT.copy())
    for k in range(3):
        e = 1e-6 * np.eye(3)[k]
        rise = np.sum(np.abs(np.roots([1.0, *(AT + e)]))) - np.sum(np.abs(np.roots([1.0, *(AT - e)])))
        assert gradient[k] == pytest.approx(rise / 2e-6, abs=1e-8)


def orbit(x, y, s):
    for _ in range(30):
        x, y = x + 0.1 * s * (y - x), y + 0.1 * (x * (2 - y) - y / 3.0) ** 2 + 0.01 * math.sin(x) - 0.1 / (1.0 + y)
    return x * 2 - 1 / y + x**3


def test_python_numbers_have_the_bits_of_arrays_of_one_element():
    value, gradient = pb.value_and_grad(orbit, argnums=(0, 1, 2))(1.0, 0.5, 0.3)
    assert value == orbit(1.0, 0.5, 0.3)
    assert all(type(part) is np.float64 for part in gradient)
    assert gradient == pb.grad(orbit, argnums=(0, 1, 2))(*map(np.float64, (1.0, 0.5, 0.3)))
    along = [jvp(orbit, (1.0, 0.5, 0.3), unit)[1] for unit in np.eye(3)]
    np.testing.assert_allclose(gradient, along, rtol=1e-12)


def test_the_slope_of_a_python_number_may_be_infinite():
    with np.errstate(divide="ignore"):
        assert pb.grad(lambda x: x**0.5)(0.0) == np.inf
        assert pb.grad(lambda x: math.sqrt(x))(0.0) == np.inf


def test_second_derivatives_of_numbers():
    second = pb.hvp(lambda p: orbit(p[0], p[1], p[2]))(AT.copy(), np.array([1.0, 0.0, 0.0]))
    h = 1e-5 * np.eye(3)[0]
    first = pb.grad(lambda p: orbit(p[0], p[1], p[2]))
    np.testing.assert_allclose(second, (first(AT + h) - first(AT - h)) / 2e-5, rtol=1e-6)


def test_an_array_of_one_number_has_a_gradient():
    value, gradient = pb.value_and_grad(lambda x: np.reshape(x @ x, (1, 1)))(np.array([1.0, 2.0]))
    assert value.shape == (1, 1)
    np.testing.assert_array_equal(gradient, [2.0, 4.0])
    with pytest.raises(TypeError, match=r"shape \(2,\)"):
        pb.grad(lambda x: x)(np.array([1.0, 2.0]))


def test_a_list_of_lists_of_different_lengths_is_for_functions_of_several_arrays():
    gradient = pb.grad(lambda p: np.sum(np.concat([p, p[:2] ** 2]) ** 2))(AT.copy())
    np.testing.assert_allclose(gradient, 2 * AT + 4 * AT**3 * [1, 1, 0], rtol=1e-14)
