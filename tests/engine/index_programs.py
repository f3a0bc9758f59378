"""Random programs that read and write through an index of any kind that NumPy takes."""

import array

import numpy as np

from pebbling.engine.numpy import grad, hvp

FIT = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
"""Differences at these distances give the slope of a polynomial of degree 6 exactly."""


class Place:
    """An object that NumPy takes for an integer."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __repr__(self):
        return f"Place({self.value})"


def integers(rng, size, together):
    """A sequence of places along an axis of ``size``, in one of the shapes that NumPy takes for one."""
    values = [int(i) for i in rng.integers(-size, size, together)]
    kind = rng.integers(0, 12)
    if kind < 8 or not values:
        whole = [
            list(values),
            tuple(values),
            np.array(values, int),
            array.array("q", values),
            memoryview(array.array("q", values)),
            np.array(values[::-1], int)[::-1],
            np.array(values, np.int8),
            [Place(value) for value in values] if values else [],
        ]
        return whole[kind % 8]
    if kind == 8:
        return range(size)[:together] if size >= together else list(values)
    rows = np.array([values, values[::-1]])
    return [rows.tolist(), np.asfortranarray(rows), rows.T.copy().T][kind - 9]


def one_item(rng, size, together):
    kind = rng.integers(0, 12)
    place = int(rng.integers(-size, size)) if size else 0
    if kind < 3:
        return [place, np.int64(place), Place(place)][kind]
    if kind == 3:
        return np.array(place)
    if kind < 7:
        ends = [None if rng.random() < 0.4 else int(rng.integers(-size - 1, size + 2)) for _ in range(2)]
        step = [None, 1, 2, -1, -2][rng.integers(0, 5)]
        ends = [np.int64(end) if end is not None and rng.random() < 0.2 else end for end in ends]
        return slice(*ends, step)
    if kind == 7:
        return (rng.random(size) < 0.5).tolist() if rng.random() < 0.5 else rng.random(size) < 0.5
    return integers(rng, size, together)


def random_index(rng, shape):
    together = int(rng.integers(0, 4))
    kind = rng.integers(0, 12)
    if kind == 0:
        return rng.random(shape) < 0.5
    if kind == 1:
        return [True, False, np.bool_(True), None, Ellipsis, ()][rng.integers(0, 6)]
    if kind < 5:
        return one_item(rng, shape[0], together) if shape else ()
    items = [one_item(rng, size, together) for size in shape[: rng.integers(0, len(shape) + 1)]]
    for extra in (None, Ellipsis, True):
        if rng.random() < 0.2:
            items.insert(int(rng.integers(0, len(items) + 1)), extra)
    return tuple(items)


def laid_out(y, kind):
    """``y`` as a new array, in one of several ways to lie in memory."""
    if kind == 0 or y.ndim == 0:
        return y * 1.0
    if kind == 1:
        return (y.T * 1.0).T
    return y[::-1] * 1.0


def random_program(seed):
    """A function of one array, that array, and what the function does in words."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 4)))
    x = rng.integers(-3, 4, shape) + rng.random(shape).round(2)
    index = random_index(rng, shape)
    what = ["read", "read twice", "write", "write plain", "add", "scale", "write spread", "view"][rng.integers(0, 8)]
    layout = int(rng.integers(0, 3))
    part = x[index]
    weights, more = rng.integers(1, 5, shape) * 1.0, rng.integers(1, 5, part.shape) * 1.0
    turned = rng.random() < 0.3

    def f(x):
        y = laid_out(x, layout)
        if what == "read":
            return np.sum(more * y[index] ** 3) + np.sum(weights * y)
        if what == "read twice":
            return np.sum(more * y[index] * x[index] ** 2)
        value = y[index] * more
        if turned and value.ndim:
            value = (value.T * 1.0).T
        if what == "write":
            y[index] = value * x[index]
        elif what == "write plain":
            y[index] = more
        elif what == "add":
            y[index] += value
        elif what == "scale":
            y[index] *= x[index]
        elif what == "write spread":
            y[index] = np.sum(value)
        else:
            z = y[index]
            z *= 2.0
            y *= x
            return np.sum(weights * y**2) + np.sum(z * more)
        return np.sum(weights * y**3) / 7.0

    return f, x, f"seed {seed}: {what} {index!r} of shape {shape}, layout {layout}, turned {turned}"


def check(seed):
    """Run one program: ``'right'``, or ``'refused by NumPy'``; anything wrong is an ``AssertionError``."""
    try:
        f, x, words = random_program(seed)
        value = f(x)
    except (IndexError, ValueError, TypeError):
        return "refused by NumPy"
    rng = np.random.default_rng(seed)
    along = rng.integers(-2, 3, x.shape) * 1.0
    seen = []

    def kept(x):
        seen.append(f(x))
        return seen[-1]

    slope = grad(kept)(x)
    assert np.array_equal(seen[0].value, value), f"{words}: the value is {seen[0].value}, NumPy's {value}"
    exact = np.imag(f(x + 1e-30j * along)) / 1e-30
    np.testing.assert_allclose(np.sum(slope * along), exact, rtol=1e-9, atol=1e-9, err_msg=words)
    second = sum(c * (grad(f)(x + k * along) - grad(f)(x - k * along)) for k, c in FIT.items())
    np.testing.assert_allclose(hvp(f)(x, along), second, rtol=1e-7, atol=1e-7, err_msg=words)
    return "right"
