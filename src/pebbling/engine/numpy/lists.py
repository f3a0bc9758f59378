"""Functions of lists that hold traced values, ``np.mean([a, b])``: NumPy looks into lists by itself, asking nobody.

Every function of NumPy that has a rule gets a stand-in, which makes arrays of such lists before it calls the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .construct import listed
from .standins import current, stand_in
from .table import TABLE
from .var import row_of_numbers

_LISTS = (list, tuple)
_THEMSELVES = frozenset({
    np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block, np.einsum, np.select,
    np.choose, np.piecewise, np.linalg.multi_dot,
})  # fmt: skip
"""Functions of a list of arrays."""


def taking_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with an array in place of each list that holds traced values."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for arg in args:
            if type(arg) in _LISTS:
                args = tuple(map(listed, args))
                break
        for value in kwargs.values():
            if type(value) in _LISTS:
                kwargs = {name: listed(value) for name, value in kwargs.items()}
                break
        return function(*args, **kwargs)

    return call


for owner in (np, np.linalg, np.fft):
    for name, function in list(vars(owner).items()):
        known = function.__hash__ is not None and function in TABLE
        if known and not isinstance(function, np.ufunc) and function not in _THEMSELVES:
            stand_in(owner, name, taking_lists(current(owner, name)))

_ARRAY = current(np, "array")


@functools.wraps(np.array)
def array(object: Any, *args: Any, **kwargs: Any) -> Any:
    """``np.array``; a list of numbers, which small systems of equations return from every step, goes a shorter way."""
    if type(object) is list and not args and not kwargs:
        row = row_of_numbers(object)
        if row is not None:
            return row
    return _ARRAY(object, *args, **kwargs)


stand_in(np, "array", array)
