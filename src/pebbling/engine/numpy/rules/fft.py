"""Fourier transforms: linear, and their matrices symmetric, so the transpose of most is the same transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..table import composed, rule


def resize(x: Any, n: int, axis: int) -> Any:
    """Cut or fill with zeros at the end to length ``n``, as a transform of length ``n`` does with its input."""
    size, axis = np.shape(x)[axis], axis % np.ndim(x)
    if size > n:
        return x[(*[slice(None)] * axis, slice(n))]
    return np.pad(x, [(0, n - size if i == axis else 0) for i in range(np.ndim(x))]) if size < n else x


def _symmetric(func: Any) -> None:
    @rule(func)
    def transform(y: Any, x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        size = np.shape(x)[axis]
        return [lambda g: resize(func(g, axis=axis, norm=norm), size, axis)], [lambda t: func(t, n, axis, norm)]


_symmetric(np.fft.fft)
_symmetric(np.fft.ifft)


@rule(np.fft.rfft)
def rfft(y: Any, x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    size = np.shape(x)[axis]
    length = size if n is None else n

    def vjp(g: Any) -> Any:
        return resize(np.real(np.fft.fft(resize(g, length, axis), axis=axis, norm=norm)), size, axis)

    return [vjp], [lambda t: np.fft.rfft(t, n, axis, norm)]


@rule(np.fft.irfft)
def irfft(y: Any, x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    size, length = np.shape(x)[axis], np.shape(y)[axis]
    # Every frequency but the first, and the last of an even length, stands for its mirror image too.
    weight = np.full(length // 2 + 1, 2.0)
    weight[0] = 1.0
    if length % 2 == 0:
        weight[-1] = 1.0
    weight = weight.reshape([-1 if i == axis % np.ndim(y) else 1 for i in range(np.ndim(y))])
    swapped: Any = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]

    def vjp(g: Any) -> Any:
        return resize(weight * np.conjugate(np.fft.rfft(g, axis=axis, norm=swapped)), size, axis)

    return [vjp], [lambda t: np.fft.irfft(t, length, axis, norm)]


def _axes(a: Any, s: Any, axes: Any) -> tuple[list[Any], Sequence[int]]:
    if axes is None:
        axes = range(-np.ndim(a), 0) if s is None else range(-len(s), 0)
    return [None] * len(axes) if s is None else [None if n == -1 else n for n in s], axes


def _all_axes(func: Any, single: Any, default: Any) -> None:
    @composed(func)
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        sizes, along = _axes(a, s, axes)
        for n, axis in zip(sizes, along):
            a = single(a, n, axis, norm)
        return a


def _half(func: Any, default: Any) -> None:
    @composed(func)
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        sizes, along = _axes(a, s, axes)
        a = np.fft.rfft(a, sizes[-1], along[-1], norm)
        for n, axis in zip(sizes[:-1], along[:-1]):
            a = np.fft.fft(a, n, axis, norm)
        return a


def _half_back(func: Any, default: Any) -> None:
    @composed(func)
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        sizes, along = _axes(a, s, axes)
        for n, axis in zip(sizes[:-1], along[:-1]):
            a = np.fft.ifft(a, n, axis, norm)
        return np.fft.irfft(a, sizes[-1], along[-1], norm)


for plane, default in (("2", (-2, -1)), ("n", None)):
    _all_axes(getattr(np.fft, "fft" + plane), np.fft.fft, default)
    _all_axes(getattr(np.fft, "ifft" + plane), np.fft.ifft, default)
    _half(getattr(np.fft, "rfft" + plane), default)
    _half_back(getattr(np.fft, "irfft" + plane), default)


@composed(np.fft.fftshift, exact=True)
def fftshift(x: Any, axes: Any = None) -> Any:
    along = tuple(range(np.ndim(x))) if axes is None else tuple(np.atleast_1d(axes).tolist())
    return np.roll(x, tuple([np.shape(x)[a] // 2 for a in along]), along)


@composed(np.fft.ifftshift, exact=True)
def ifftshift(x: Any, axes: Any = None) -> Any:
    along = tuple(range(np.ndim(x))) if axes is None else tuple(np.atleast_1d(axes).tolist())
    return np.roll(x, tuple([-(np.shape(x)[a] // 2) for a in along]), along)
