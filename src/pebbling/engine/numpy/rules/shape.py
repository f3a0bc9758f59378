"""Other shapes of the same elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..refuse import refuse
from ..table import composed, primitive, rule
from ..traced import plain


@rule(np.reshape, view=True)
def reshape(y: Any, x: Any, shape: Any, order: Any = "C", *, copy: Any = None) -> Any:
    before = np.shape(x)
    if order == "A":
        order = "F" if _is_fortran(x) else "C"
    return [lambda g: np.reshape(g, before, order=order)], [lambda t: np.reshape(t, np.shape(y), order=order)]


@rule(np.ravel, view=True)
def ravel(y: Any, x: Any, order: Any = "C") -> Any:
    before, order = np.shape(x), "C" if order == "C" else order
    if order in "AK":
        order = "F" if _is_fortran(x) else "C"
    return [lambda g: np.reshape(g, before, order=order)], [lambda t: np.ravel(t, order)]


def _is_fortran(x: Any) -> bool:
    flags = plain(x).flags
    if not flags.forc:
        raise refuse("order='A' or 'K' of an array that is not contiguous has no derivative rule", "Say order='C'")
    return bool(flags.fnc)


@rule(np.transpose, view=True)
def transpose(y: Any, x: Any, axes: Any = None) -> Any:
    back = None if axes is None else tuple(np.argsort([a % len(axes) for a in axes]).tolist())
    return [lambda g: np.transpose(g, back)], [lambda t: np.transpose(t, axes)]


@rule(np.matrix_transpose, view=True)
def matrix_transpose(y: Any, x: Any) -> Any:
    return [np.matrix_transpose], [np.matrix_transpose]


@rule(np.swapaxes, view=True)
def swapaxes(y: Any, x: Any, axis1: int, axis2: int) -> Any:
    return [lambda g: np.swapaxes(g, axis1, axis2)], [lambda t: np.swapaxes(t, axis1, axis2)]


@rule(np.moveaxis, view=True)
def moveaxis(y: Any, x: Any, source: Any, destination: Any) -> Any:
    return [lambda g: np.moveaxis(g, destination, source)], [lambda t: np.moveaxis(t, source, destination)]


@composed(np.rollaxis, exact=True)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    axis, start = axis % a.ndim, start + a.ndim if start < 0 else start
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


def _to(shape: Any) -> Any:
    return lambda g: np.reshape(g, shape)


@rule(np.expand_dims, view=True)
def expand_dims(y: Any, x: Any, axis: Any) -> Any:
    return [_to(np.shape(x))], [_to(np.shape(y))]


@rule(np.squeeze, view=True)
def squeeze(y: Any, x: Any, axis: Any = None) -> Any:
    return [_to(np.shape(x))], [_to(np.shape(y))]


def _at_least(func: Any) -> None:
    @primitive(func, view=True)
    def one(y: Any, x: Any) -> Any:
        return [_to(np.shape(x))], [_to(np.shape(y))]

    @composed(func, exact=True)
    def each(*arrays: Any) -> Any:
        return tuple([one(a) for a in arrays]) if len(arrays) != 1 else one(arrays[0])


for function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    _at_least(function)


@rule(np.broadcast_to, view=True)
def broadcast_to(y: Any, x: Any, shape: Any) -> Any:
    return [lambda g: g], [lambda t: np.broadcast_to(t, shape)]


@composed(np.broadcast_arrays, exact=True)
def broadcast_arrays(*arrays: Any) -> Any:
    shape = np.broadcast_shapes(*[np.shape(a) for a in arrays])
    return tuple([np.broadcast_to(a, shape) for a in arrays])


@rule(np.flip, view=True)
def flip(y: Any, x: Any, axis: Any = None) -> Any:
    return [lambda g: np.flip(g, axis)], [lambda t: np.flip(t, axis)]


@rule(np.fliplr, view=True)
def fliplr(y: Any, x: Any) -> Any:
    return [np.fliplr], [np.fliplr]


@rule(np.flipud, view=True)
def flipud(y: Any, x: Any) -> Any:
    return [np.flipud], [np.flipud]


@rule(np.rot90, view=True)
def rot90(y: Any, x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    return [lambda g: np.rot90(g, -k, axes)], [lambda t: np.rot90(t, k, axes)]


@rule(np.roll)
def roll(y: Any, x: Any, shift: Any, axis: Any = None) -> Any:
    back = tuple([-s for s in shift]) if isinstance(shift, tuple | list) else -shift
    return [lambda g: np.roll(g, back, axis)], [lambda t: np.roll(t, shift, axis)]


@composed(np.tile, exact=True)
def tile(A: Any, reps: Any) -> Any:
    reps = tuple(np.atleast_1d(reps).tolist())
    shape = (1,) * (len(reps) - np.ndim(A)) + np.shape(A)
    reps = (1,) * (len(shape) - len(reps)) + reps
    between = [n for pair in zip(reps, shape) for n in pair]
    single = np.reshape(A, [n for size in shape for n in (1, size)])
    return np.reshape(np.copy(np.broadcast_to(single, between)), [r * n for r, n in zip(reps, shape)])


@composed(np.repeat, exact=True)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take(a, np.repeat(np.arange(a.shape[axis]), repeats), axis=axis)
