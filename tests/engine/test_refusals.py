"""What can't be differentiated is refused at the user's line, with a way out; nothing is silently wrong."""

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import special

from pebbling.engine.numpy import grad, hvp, jvp, rule, stop_gradient, table, vjp
from pebbling.errors import SourceError

X = np.array([0.3, 0.7, 1.1])
PLAIN, ZERO = np.zeros(3), np.zeros(())


class Own(np.ndarray):
    """A kind of array with its own arithmetic."""


def fill_plain(x):
    a = PLAIN.copy()
    a[0] = x[0]
    return np.sum(a)


def fill_plain_whole(x):
    a = PLAIN.copy()
    a[:] = x
    return np.sum(a)


def add_into_plain(x):
    a = PLAIN.copy()
    a += x
    return np.sum(a)


def add_at_plain(x):
    a = PLAIN.copy()
    np.add.at(a, [0, 0, 1], x)
    return np.sum(a)


LARGE = np.linspace(0.3, 1.1, 100)
GIVEN = np.ones(len(LARGE))


def write_while_needed(x):
    a = GIVEN[: len(x)]
    y = x * a
    a[0] = 5.0
    return np.sum(y)


REFUSED = [
    (fill_plain, "make it with np.zeros"),
    (fill_plain_whole, "make it with np.zeros"),
    (add_into_plain, r"np.add .*out= or a \+= x"),
    (add_at_plain, "np.add.at"),
    (lambda x: PLAIN.dot(x), "lose its derivative"),
    (lambda x: math.nextafter(x[0], 2.0), "functions of np in place of math"),
    (lambda x: float(x[0]) * x[0], "float"),
    (lambda x: complex(x[0]) * x[0], "complex"),
    (lambda x: np.sum(np.multiply(x, 2.0, out=PLAIN)), "np.multiply .*out="),
    (lambda x: np.sum(np.sum(x, out=ZERO)), "np.sum .*out="),
    (lambda x: np.sum(x, None, None, ZERO), "np.sum .*out="),
    (lambda x: np.sum(np.multiply(x, 2.0, where=[True, False, True])), "np.multiply .*where="),
    (lambda x: np.sum(np.add(x, 1.0, dtype=np.float32)), "np.add .*dtype="),
    (lambda x: np.prod(x, where=[True, False, True]), "np.prod .*where"),
    (lambda x: np.sum(np.spacing(np.kaiser(3, x[0]))), "np.kaiser|lose its derivative"),
    (
        lambda x: np.sum(np.multiply.reduceat(x, [0])),
        r"multiply.reduceat has no (.|\n)*numpy.rule\(np.multiply.reduceat\)",
    ),
    (lambda x: np.sum(np.array([x[0], x[1]], dtype=object)), "Python objects"),
    (lambda x: np.sum(np.r_["r", x]), "np.r_ with a string"),
    (lambda x: np.sum(np.linalg.qr(np.outer(x, x), "complete")[0]), "np.linalg.qr .* has no derivative rule"),
    (lambda x: np.sum(np.frexp(x)[0]), "np.frexp has no derivative rule"),
    (lambda x: special.struve(1.0, x[0]), "scipy.special.struve has no derivative rule"),
    (lambda x: special.jv(x[0], 1.0), "order or shape"),
    (lambda x: special.boxcox(1.0, x[0]), "order or shape"),
    (lambda x: np.max(x, None, None, False, x[0]), "np.max got a traced array as an argument"),
    (lambda x: np.max(x, initial=x[0]), "np.max got a traced array as an argument"),
    (lambda x: np.max(np.ones(3), initial=x[0]), "np.max got a traced array as an argument"),
    (lambda x: np.sum(np.multiply(x, np.ones(3).view(Own))), "Own"),
    (lambda x: np.sum(np.quantile(x, 0.2, method="lower")), "lower"),
    (lambda x: np.sum(np.pad(x, 1, mode="mean")), "mean"),
    (lambda x: np.interp(0.2, x, x, period=1.0), "period"),
    (lambda x: np.sum(np.nan_to_num(x, copy=False)), "copy=False"),
    (lambda x: np.real(np.sum(np.maximum(x + 1j, 0.0))), "np.maximum of complex numbers"),
    (lambda x: np.real(np.sum(np.sort(x + 1j))), "np.sort of complex numbers"),
    (lambda x: np.real(np.sign(x[0] + 1j)), "np.sign of complex numbers"),
]


@pytest.mark.parametrize(("f", "message"), REFUSED)
def test_refused(f, message):
    f_line = f.__code__.co_firstlineno
    for derivative in (lambda: grad(f)(X), lambda: jvp(f, (X,), (X,)), lambda: hvp(f)(X, X)):
        with pytest.raises(SourceError, match=message) as caught:
            derivative()
        line = int(str(caught.value).split("test_refusals.py:")[1].split(":")[0])
        assert f_line <= line <= f_line + 3


def test_a_plain_array_can_not_be_written_while_the_tape_needs_it():
    with pytest.raises(SourceError, match="read-only") as caught:
        grad(write_while_needed)(LARGE)
    assert "test_refusals.py" in str(caught.value)
    assert "a[0] = 5.0" in str(caught.value)
    assert "x = x.copy()" in str(caught.value)


def test_a_small_plain_array_is_copied_and_may_be_written_at_once():
    np.testing.assert_array_equal(grad(write_while_needed)(X), np.ones(3))
    index = np.array([0, 1, 1])

    def f(x):
        y = x[index]
        index[0] = 2
        return np.sum(y * y)

    np.testing.assert_array_equal(grad(f)(X), 2 * X * [1, 2, 0])


def test_it_can_be_written_again_afterwards():
    a = np.ones((3, 100))
    row = a[1]
    with pytest.raises(SourceError, match="read-only"):
        grad(lambda x: np.sum(x * row) + a.fill(0.0))(LARGE)
    a[0, 0] = row[0] = 2.0
    grad(lambda x: np.sum(x * row * a))(LARGE)
    a[0, 0] = row[0] = 3.0
    kept = np.ones(100)
    kept.flags.writeable = False
    grad(lambda x: np.sum(x * kept))(LARGE)
    assert not kept.flags.writeable


def test_it_can_be_written_while_an_error_is_handled():
    a = np.ones(3)

    def f(x):
        y = x * a
        raise KeyError(y)

    with pytest.raises(KeyError) as caught:
        grad(f)(X)
    a[0] = 2.0
    assert caught.type is KeyError


def test_two_tapes_that_need_one_array():
    a = np.ones(101)
    view = a[:100]
    _, first = vjp(lambda x: x * view, LARGE)
    _, second = vjp(lambda x: x * view, LARGE)
    first(np.ones(100))
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0
    del second
    view[0] = a[100] = 2.0


def test_the_argument_can_not_be_written_before_the_pullback():
    x = X.copy()
    _, pullback = vjp(np.sin, x)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1.0
    np.testing.assert_array_equal(pullback(np.ones(3))[0], np.cos(x))
    x[0] = 1.0


def test_a_used_up_index_can_not_be_written_either():
    index = np.array([0, 1, 1] * 30)

    def f(x):
        y = x[index]
        index[0] = 2
        return np.sum(y * y)

    with pytest.raises(SourceError, match="read-only"):
        grad(f)(X)
    index[0] = 2


def test_arguments_that_share_memory_can_not_be_assigned_to():
    base = np.ones(4)

    def f(x, y):
        x[0] = 2.0
        return np.sum(x * y)

    for derive in (lambda *args: vjp(f, *args), lambda *args: jvp(f, args, args)):
        with pytest.raises(SourceError, match="share memory"):
            derive(base[:3], base[1:])
        derive(base[:2], base[2:])


@pytest.mark.parametrize("bad", [3, np.arange(3), np.array([True]), np.array([1.0, None]), "text", [1, 2.0]])
def test_only_floating_point_arguments(bad):
    with pytest.raises(TypeError, match=r"argument 0.*convert it"):
        grad(lambda x: 1.0)(bad)
    with pytest.raises(TypeError, match="argument 1"):
        grad(lambda y, x: 1.0, 1)(0.0, bad)


@pytest.mark.parametrize("bad", [np.ones(2).view(Own), np.ma.masked_array([1.0, 2.0], [True, False])])
def test_arrays_with_their_own_arithmetic(bad):
    with pytest.raises(TypeError, match="argument 0"):
        grad(lambda x: np.sum(x))(bad)


def test_an_integer_deep_inside_is_named():
    with pytest.raises(TypeError, match=r"argument 0\['w'\]\[1\] is int64"):
        grad(lambda p: 1.0)({"w": [1.0, np.arange(3)]})


def test_object_arrays():
    with pytest.raises(SourceError, match="object"):
        grad(lambda x: np.sum(x * np.array([1.0, 2.0, 3.0], object)))(X)


@pytest.mark.parametrize("f", [lambda x: x, lambda x: (x[0], x[1]), lambda x: x[0] + 1j, lambda x: 1])
def test_the_gradient_is_of_one_real_number(f):
    with pytest.raises(TypeError, match="one real number"):
        grad(f)(X)


def test_shapes_of_tangents_and_cotangents():
    with pytest.raises(ValueError, match=r"tangent 0 has shape \(2,\), but the argument has shape \(3,\)"):
        jvp(np.sin, (X,), (np.ones(2),))
    with pytest.raises(ValueError, match=r"cotangent 0 has shape \(\), but the output has shape \(3,\)"):
        vjp(np.sin, X)[1](1.0)
    with pytest.raises(ValueError, match="2 cotangents were given for 1 outputs"):
        vjp(np.sin, X)[1]((X, X))


def test_a_pullback_goes_once():
    _, pullback = vjp(np.sin, X)
    pullback(X)
    with pytest.raises(RuntimeError, match="used"):
        pullback(X)


def test_traced_arrays_can_not_leave_by_pickle_but_can_be_copied():
    with pytest.raises(TypeError, match="pickled"):
        grad(lambda x: pickle.dumps(x))(X)
    np.testing.assert_array_equal(grad(lambda x: np.sum(copy.deepcopy(x) * copy.copy(x)))(X), 2 * X)


def test_an_unknown_attribute():
    with pytest.raises(AttributeError, match=r"no \.ctypes"):
        grad(lambda x: x.ctypes)(X)


def test_values_of_an_inner_derivative_stay_inside():
    def f(x):
        kept = np.zeros_like(x)

        def inner(y):
            kept[0] = y
            return y * y

        return grad(inner)(x[0]) + np.sum(kept)

    with pytest.raises(SourceError, match="inner derivative"):
        grad(f)(X)


def test_a_rule_can_be_added(monkeypatch):
    monkeypatch.setattr(table, "TABLE", dict(table.TABLE))

    @rule(np.unwrap)
    def unwrap(y, x):
        return [lambda g: g], [lambda t: t]

    np.testing.assert_array_equal(grad(lambda x: np.sum(np.unwrap(x)))(X), np.ones(3))
    np.testing.assert_array_equal(hvp(lambda x: np.sum(np.unwrap(x) ** 2))(X, X), 2 * X)


def test_stop_gradient_gives_a_value_that_can_not_change_the_traced_one():
    def f(x):
        y = stop_gradient(x)
        assert not y.flags.writeable
        return np.sum(x * y)

    np.testing.assert_array_equal(grad(f)(X), X)
