"""The pullbacks of the commonest entries, written out because they decide the speed of a small step.

Each takes the list of cotangents, whose last one belongs to the entry, and the entry.
"""

from __future__ import annotations

from typing import Any

from numpy import float64, matmul, ndarray

from .tape import accumulate, fit, is_own, meta

ADD = "add"
"""The attribute of a vjp that adds its result to a sum, ``add(total, g)``, where that takes less than having it."""


def pull_same(grads: list[Any], entry: Any) -> None:
    """``y = x + c``: the entry is (pull, x)."""
    accumulate(grads, entry[1], grads[-1])


def pull_add(grads: list[Any], entry: Any) -> None:
    """``z = x + y``, equal shapes: (pull, x, y)."""
    g = grads[-1]
    _, i, j = entry
    if grads[i] is None:
        grads[i] = g
    else:
        accumulate(grads, i, g)
    if grads[j] is None:
        grads[j] = g
    else:
        accumulate(grads, j, g)


def pull_subtract(grads: list[Any], entry: Any) -> None:
    """``z = x - y``, equal shapes: (pull, x, y)."""
    g = grads[-1]
    accumulate(grads, entry[1], g)
    accumulate(grads, entry[2], -g)


def pull_add_fit(grads: list[Any], entry: Any) -> None:
    """``z = x + y``, broadcast or cast: (pull, x, y, (shape, dtype) of x, of y)."""
    g = grads[-1]
    _, i, j, like_x, like_y = entry
    accumulate(grads, i, fit(g, *like_x))
    accumulate(grads, j, fit(g, *like_y))


def pull_subtract_fit(grads: list[Any], entry: Any) -> None:
    """``z = x - y``, broadcast or cast: (pull, x, y, (shape, dtype) of x, of y)."""
    g = grads[-1]
    _, i, j, like_x, like_y = entry
    accumulate(grads, i, fit(g, *like_x))
    accumulate(grads, j, fit(-g, *like_y))


def pull_multiply_fit(grads: list[Any], entry: Any) -> None:
    """``z = x * y``, broadcast or cast: (pull, x, y, value of x, value of y)."""
    g = grads[-1]
    _, i, j, x, y = entry
    accumulate(grads, i, fit(g * y, *meta(x)))
    accumulate(grads, j, fit(g * x, *meta(y)))


def pull_divide_fit(grads: list[Any], entry: Any) -> None:
    """``z = x / y``, broadcast or cast: (pull, x, y, value of y, value of z, (shape, dtype) of x)."""
    _, i, j, y, z, like_x = entry
    part = grads[-1] / y
    accumulate(grads, j, fit(-part * z, *meta(y)))
    accumulate(grads, i, fit(part, *like_x))


def pull_negative(grads: list[Any], entry: Any) -> None:
    """``y = c - x``: (pull, x)."""
    accumulate(grads, entry[1], -grads[-1])


def pull_multiply(grads: list[Any], entry: Any) -> None:
    """``z = x * y``, equal shapes: (pull, x, y, value of x, value of y)."""
    g = grads[-1]
    _, i, j, x, y = entry
    if grads[i] is None:
        grads[i] = g * y
    else:
        accumulate(grads, i, g * y)
    if grads[j] is None:
        grads[j] = g * x
    else:
        accumulate(grads, j, g * x)


def pull_scale(grads: list[Any], entry: Any) -> None:
    """``y = x * c``: (pull, x, c)."""
    accumulate(grads, entry[1], grads[-1] * entry[2])


def pull_divide(grads: list[Any], entry: Any) -> None:
    """``z = x / y``, equal shapes: (pull, x, y, value of y, value of z)."""
    _, i, j, y, z = entry
    part = grads[-1] / y
    accumulate(grads, j, -part * z)
    accumulate(grads, i, part)


def pull_shrink(grads: list[Any], entry: Any) -> None:
    """``y = x / c``: (pull, x, c)."""
    accumulate(grads, entry[1], grads[-1] / entry[2])


def pull_over(grads: list[Any], entry: Any) -> None:
    """``y = c / x``: (pull, x, value of x, value of y)."""
    _, i, x, y = entry
    accumulate(grads, i, -(grads[-1] / x) * y)


def pull_unary(grads: list[Any], entry: Any) -> None:
    """``y = f(x)``, element by element: (pull, x, slope, what it is a function of)."""
    _, i, slope, at = entry
    if grads[i] is None:
        grads[i] = grads[-1] * slope(at)
    else:
        accumulate(grads, i, grads[-1] * slope(at))


def pull_slope(grads: list[Any], entry: Any) -> None:
    """``y = f(x)``, element by element: (pull, x, slope)."""
    _, i, slope = entry
    accumulate(grads, i, grads[-1] * slope())


def pull_elementwise(grads: list[Any], entry: Any) -> None:
    """``y = f(x, …)``, element by element, broadcast: (pull, [(x, slope, shape, dtype), …])."""
    g = grads[-1]
    for i, slope, shape, dtype in entry[1]:
        accumulate(grads, i, fit(g * slope(), shape, dtype))


def pull_primitive(grads: list[Any], entry: Any) -> None:
    """``y = f(x, …)``: (pull, [(x, vjp, shape, dtype), …])."""
    g = grads[-1]
    for i, vjp, shape, dtype in entry[1]:
        add = getattr(vjp, ADD, None)
        if add is not None and type(g) is ndarray and g.dtype is dtype and is_own(grads, i):
            add(grads[i], g)
            continue
        part = vjp(g)
        if part.shape != shape or part.dtype is not dtype:
            part = fit(part, shape, dtype)
        accumulate(grads, i, part)
        part = None  # it may be large, and the next one is computed before this name is bound again


def pull_product_with(grads: list[Any], entry: Any) -> None:
    """``y = a @ x``, a plain matrix: (pull, x, a)."""
    accumulate(grads, entry[1], matmul(entry[2].T, grads[-1]))


def pull_row(grads: list[Any], entry: Any) -> None:
    """``y = np.array([x, …])`` of numbers: (pull, places, -1 for those that are plain)."""
    g = grads[-1]
    for k, i in enumerate(entry[1]):
        if i >= 0:
            _add_number(grads, i, g[k])


def pull_item(grads: list[Any], entry: Any) -> None:
    """One of several results: (pull, the entry of all, position, how many)."""
    _, i, position, length = entry
    if grads[i] is None:
        grads[i] = [None] * length
    grads[i][position] = grads[-1]


# Of numbers, for code that works on one element at a time: nothing has a shape, and nothing is added to in place.


def _add_number(grads: list[Any], i: int, part: Any) -> None:
    before = grads[i]
    grads[i] = part if before is None else before + part


def same_number(grads: list[Any], entry: Any) -> None:
    """``y = x + c``: (pull, x)."""
    i = entry[1]
    before, part = grads[i], grads[-1]
    grads[i] = part if before is None else before + part


def negative_number(grads: list[Any], entry: Any) -> None:
    """``y = c - x``: (pull, x)."""
    _add_number(grads, entry[1], -grads[-1])


def add_numbers(grads: list[Any], entry: Any) -> None:
    """``z = x + y``: (pull, x, y)."""
    g = grads[-1]
    _, i, j = entry
    before = grads[i]
    grads[i] = g if before is None else before + g
    before = grads[j]
    grads[j] = g if before is None else before + g


def subtract_numbers(grads: list[Any], entry: Any) -> None:
    """``z = x - y``: (pull, x, y)."""
    g = grads[-1]
    _, i, j = entry
    before = grads[i]
    grads[i] = g if before is None else before + g
    before = grads[j]
    grads[j] = -g if before is None else before + -g


def multiply_numbers(grads: list[Any], entry: Any) -> None:
    """``z = x * y``: (pull, x, y, value of x, value of y)."""
    g = grads[-1]
    _, i, j, x, y = entry
    before = grads[i]
    grads[i] = g * y if before is None else before + g * y
    before = grads[j]
    grads[j] = g * x if before is None else before + g * x


def scale_number(grads: list[Any], entry: Any) -> None:
    """``y = x * c``: (pull, x, c)."""
    _, i, c = entry
    before, part = grads[i], grads[-1] * c
    grads[i] = part if before is None else before + part


def divide_numbers(grads: list[Any], entry: Any) -> None:
    """``z = x / y``: (pull, x, y, value of y, value of z)."""
    _, i, j, y, z = entry
    part = grads[-1] / y
    _add_number(grads, j, -part * z)
    _add_number(grads, i, part)


def shrink_number(grads: list[Any], entry: Any) -> None:
    """``y = x / c``: (pull, x, c)."""
    _add_number(grads, entry[1], grads[-1] / entry[2])


def over_number(grads: list[Any], entry: Any) -> None:
    """``y = c / x``: (pull, x, value of x, value of y)."""
    _, i, x, y = entry
    _add_number(grads, i, -(grads[-1] / x) * y)


def number(grads: list[Any], entry: Any) -> None:
    """``y = f(x)``: (pull, x, slope, value of y, value of x)."""
    _, i, slope, y, x = entry
    _add_number(grads, i, grads[-1] * slope(float64(y), float64(x)))
