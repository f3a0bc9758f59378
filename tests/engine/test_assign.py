"""Assignment, views and augmented assignment: traced programs do what NumPy does, and their derivatives are right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.engine.numpy import grad, hvp, jvp, value_and_grad, vjp

VIEWS = {
    "x[1:]": lambda x: x[1:],
    "x[::-1]": lambda x: x[::-1],
    "x[0]": lambda x: x[0],
    "x[..., :1]": lambda x: x[..., :1],
    "x[None]": lambda x: x[None],
    "x.T": lambda x: x.T,
    "x.reshape(-1)": lambda x: x.reshape(-1),
    "np.ravel(x)": np.ravel,
    "np.flip(x)": np.flip,
    "np.atleast_2d(x)": np.atleast_2d,
    "np.squeeze(x)": np.squeeze,
    "x[:, :2]": lambda x: x[:, :2] if x.ndim > 1 else x[:2],
    "np.split(x, 2)[1]": lambda x: np.array_split(x, 2)[1],
}
COPIES = {
    "x.copy()": lambda x: x.copy(),
    "x * 2": lambda x: x * 2,
    "np.sin(x)": np.sin,
    "x[[0, -1]]": lambda x: x[[0, -1]],
    "x[mask]": lambda x: x[np.arange(len(x)) % 2 == 0],
    "np.zeros_like(x)": np.zeros_like,
    "x": lambda x: x,
    "np.sin(x.T)": lambda x: np.sin(x.T),
}
INDICES = {
    "0": lambda x: 0,
    "-1": lambda x: -1,
    "1:": lambda x: slice(1, None),
    "::2": lambda x: slice(None, None, 2),
    "::-1": lambda x: slice(None, None, -1),
    "...": lambda x: Ellipsis,
    "..., 0": lambda x: (Ellipsis, 0),
    "mask": lambda x: np.arange(len(x)) % 2 == 0,
    "[0, -1, 0]": lambda x: [0, -1, 0],
    "array": lambda x: np.array([len(x) - 1, 0]),
}
NAMES = "abcd"
statement = st.one_of(
    st.tuples(st.just("make"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([*VIEWS, *COPIES])),
    st.tuples(st.just("set"), st.sampled_from(NAMES), st.sampled_from(list(INDICES)), st.sampled_from(NAMES)),
    st.tuples(st.just("move"), st.sampled_from(NAMES), st.just("1:"), st.sampled_from(NAMES)),
    st.tuples(st.just("add"), st.sampled_from(NAMES), st.sampled_from(list(INDICES)), st.sampled_from(NAMES)),
    st.tuples(st.just("map"), st.sampled_from(NAMES), st.sampled_from(list(INDICES)), st.sampled_from(NAMES)),
    st.tuples(st.just("turn"), st.sampled_from(NAMES), st.just(""), st.sampled_from(NAMES)),
    st.tuples(st.just("scale"), st.sampled_from(NAMES), st.just(""), st.sampled_from(NAMES)),
    st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(""), st.just("")),
)


def run(program, x):
    """Interpret a program on one array; statements that make no sense for what a name holds are passed over."""
    names = {"a": x}
    for kind, name, how, other in program:
        if kind == "make":
            source, way = how, other
            if source in names and np.ndim(names[source]) > 0 and len(names[source]) > 1:
                names[name] = {**VIEWS, **COPIES}[way](names[source])
            continue
        if name not in names or (kind != "drop" and (other not in names or np.ndim(names[name]) == 0)):
            continue
        if kind == "drop":
            if len(names) > 1:
                del names[name]
            continue
        target = names[name]
        if len(target) == 0:
            continue
        if kind == "set":
            target[INDICES[how](target)] = np.mean(np.cos(names[other]))
        elif kind == "move":
            target[1:] = target[:-1]
        elif kind == "add":
            target[INDICES[how](target)] += np.mean(names[other]) * 0.5
        elif kind == "map":
            index = INDICES[how](target)
            target[index] = np.cos(target[index])
        elif kind == "turn":
            if target.ndim == 2 and target.shape[0] == target.shape[1]:
                target += np.asfortranarray(np.eye(len(target))) + 0.1 * np.mean(names[other])
        elif kind == "scale":
            target *= 1 + 0.1 * np.max(names[other])
            names[name] = target
    return names


def total(program):
    def f(x):
        names = run(program, x)
        return sum(np.sum(np.sin(v) * (1 + np.arange(v.size).reshape(v.shape))) for v in names.values())

    return f


def slope(f, x, v, step=1e-4):
    return (8 * (f(x + step * v) - f(x - step * v)) - (f(x + 2 * step * v) - f(x - 2 * step * v))) / (12 * step)


POINT = np.random.default_rng(3).uniform(0.2, 1.4, (3, 3))
ALONG = np.random.default_rng(4).normal(size=(3, 3))


@settings(max_examples=250, deadline=None)
@given(st.lists(statement, max_size=12))
def test_random_programs(program):
    f = total(program)
    plain = run(program, POINT.copy())
    expected = f(POINT.copy())
    value, gradient = value_and_grad(f)(POINT)
    assert value == expected
    pushed, tangent = jvp(f, (POINT,), (ALONG,))
    assert pushed == expected
    for values in (jvp(lambda x: run(program, x), (POINT,), (ALONG,))[0], vjp(lambda x: run(program, x), POINT)[0]):
        for name, array in plain.items():
            assert np.asarray(values[name]).tobytes() == np.asarray(array).tobytes(), name
    finite = slope(lambda x: f(x.copy()), POINT, ALONG)
    assert np.sum(gradient * ALONG) == pytest.approx(finite, rel=1e-6, abs=1e-6)
    assert tangent == pytest.approx(finite, rel=1e-6, abs=1e-6)
    second = slope(grad(f), POINT, ALONG)
    np.testing.assert_allclose(hvp(f)(POINT, ALONG), second, rtol=1e-5, atol=1e-5)


def test_two_names_for_one_array():
    def f(x):
        y = x
        x[0] = 2.0
        x += 1.0
        return np.sum(y * y)

    np.testing.assert_array_equal(grad(f)(np.arange(3.0)), [0.0, 4.0, 6.0])


def test_a_number_is_replaced_and_not_changed():
    def f(x):
        s = x[0]
        t = s
        s += x[1]
        return s * t

    np.testing.assert_array_equal(grad(f)(np.array([2.0, 3.0])), [7.0, 2.0])


def test_writing_into_a_view_reaches_the_base_and_its_other_views():
    def f(x):
        row, column, flat = x[0], x[:, 0], x.T.reshape(-1)
        row[0] = 5.0
        column *= 2.0
        return np.sum(x * x) + flat[0] + row[0]

    x = np.ones((2, 2))
    value, gradient = value_and_grad(f)(x)
    assert value == f(np.ones((2, 2)))
    np.testing.assert_array_equal(gradient, [[1.0, 2.0], [8.0, 2.0]])


def test_rows_can_be_changed_in_a_loop_over_them():
    def f(x):
        for i, row in enumerate(x):
            row *= i + 1.0
        x[0][1] = 0.0
        return np.sum(x * x)

    np.testing.assert_array_equal(grad(f)(np.ones((2, 2))), [[2.0, 0.0], [8.0, 8.0]])


def test_a_repeated_index_keeps_the_last_value():
    def f(x):
        y = np.zeros_like(x)
        y[[0, 0, 1]] = x
        return np.sum(y * np.array([1.0, 10.0, 100.0]))

    np.testing.assert_array_equal(grad(f)(np.array([1.0, 2.0, 3.0])), [0.0, 1.0, 10.0])


def test_the_argument_of_the_caller_stays_as_it_was():
    x = np.ones(3)

    def f(x):
        x[:] = x * x
        x[1] += 3.0
        return np.sum(x)

    np.testing.assert_array_equal(grad(f)(x), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(x, np.ones(3))
    assert x.flags.writeable


def test_in_place_methods():
    def f(x):
        y = x * 1.0
        y.sort()
        z = np.zeros_like(x)
        z.fill(y[-1])
        return np.sum(y * np.arange(3.0)) + np.sum(z)

    np.testing.assert_array_equal(grad(f)(np.array([3.0, 1.0, 2.0])), [5.0, 0.0, 1.0])


@pytest.mark.parametrize("bad", [np.ones(4), np.ones((2, 3))])
def test_shapes_that_do_not_fit_are_numpys_error(bad):
    def f(x):
        x += bad
        return np.sum(x)

    with pytest.raises(ValueError, match="broadcast"):
        grad(f)(np.ones(3))


def test_float32_stays_float32_in_place():
    def f(x):
        x *= np.ones(3)
        x[0] = np.float64(2.0)
        assert x.dtype == np.float32
        return np.sum(x)

    assert grad(f)(np.ones(3, np.float32)).dtype == np.float32


def block(x):
    part = x[:, :2]
    part *= 2.0
    flat = part.reshape(-1)
    flat[0] = 9.0
    return part


def odd_argument(x):
    x += 1.0
    flat = x.reshape(-1)
    flat[0] = 9.0
    return x


def other_order(x):
    y = x.T + 0.0
    y[0] = 5.0
    y.ravel()[1] = 7.0
    return y


@pytest.mark.parametrize("f", [block, odd_argument, other_order])
@pytest.mark.parametrize("make", [lambda: np.ones((3, 4)), lambda: np.ones((3, 8))[:, ::2], lambda: np.ones((4, 3)).T])
def test_a_new_value_keeps_the_layout_that_decides_what_is_a_view(f, make):
    expected = f(make())
    np.testing.assert_array_equal(vjp(f, make())[0], expected)
    np.testing.assert_array_equal(jvp(f, (make(),), (make(),))[0], expected)
    nested = jvp(lambda x: value_and_grad(lambda x: np.sum(f(x) ** 2))(x), (make(),), (make(),))[0]
    assert nested[0] == np.sum(expected**2)


def test_arrays_without_axes_change_in_place_too():
    def f(x):
        y = np.reshape(x * 2.0, ())
        z = y
        y += 1.0
        y *= x
        z[...] += 1.0
        return y + z

    def plain(x):
        return 2 * ((2 * x + 1) * x + 1)

    assert value_and_grad(f)(0.5) == (plain(0.5), 6.0)
    assert jvp(f, (0.5,), (1.0,))[1] == 6.0


def test_lists_of_traced_numbers_can_be_assigned():
    def f(x):
        y = np.zeros_like(x)
        y[:2] = [x[0] * x[1], 3.0]
        y[2:] = (x[2],)
        return np.sum(y * np.array([1.0, 10.0, 100.0]))

    np.testing.assert_array_equal(grad(f)(np.array([2.0, 3.0, 4.0])), [3.0, 2.0, 100.0])
