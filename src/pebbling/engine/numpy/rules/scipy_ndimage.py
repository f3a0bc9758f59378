"""``scipy.ndimage``: correlation with a kernel, and the filters that are made of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import ndimage  # type: ignore[import-untyped]

from ..foreign import formula, refused_where_traced
from ..refuse import refuse
from ..table import primitive
from ..traced import plain

_MODES = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap",
    "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant",
}  # fmt: skip
"""What ``np.pad`` calls the ways of ``scipy.ndimage`` beyond the edge."""


def _each(value: Any, n: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value] * n


def _valid(x: Any, w: Any) -> Any:
    """The sum of the parts of ``x`` on which ``w`` lies, where all of it does."""
    size = [n - k + 1 for n, k in zip(np.shape(x), np.shape(w))]
    total: Any = 0.0
    for at in itertools.product(*map(range, np.shape(w))):
        total = total + w[at] * x[tuple([slice(i, i + n) for i, n in zip(at, size)])]
    return total


@primitive(_valid, arrays=slice(2))
def valid(y: Any, x: Any, w: Any) -> Any:
    """The correlation of ``x`` and ``w`` without anything beyond the edge."""
    edge = [(k - 1, k - 1) for k in np.shape(w)]
    return (
        [lambda g: valid(np.pad(g, edge), np.flip(w)), lambda g: valid(x, g)],
        [lambda t: valid(t, w), lambda t: valid(x, t)],
    )


def _correlated(x: Any, w: Any, modes: Any, cval: Any, origin: Any) -> Any:
    for axis, (k, mode, shift) in enumerate(zip(np.shape(w), modes, origin)):
        if mode not in _MODES:
            raise refuse(f"scipy.ndimage with mode={mode!r} has no derivative rule", f"Use one of {', '.join(_MODES)}")
        before = k // 2 + shift
        ends = [(0, 0)] * np.ndim(x)
        ends[axis] = (before, k - 1 - before)
        more: Any = {"constant_values": cval} if _MODES[mode] == "constant" else {}
        if any(ends[axis]):
            beyond: Any = _MODES[mode]
            x = np.pad(x, ends, mode=beyond, **more)
    return valid(x, w)


def _no_output(output: Any) -> None:
    if output is not None and not isinstance(output, type | np.dtype | str):
        raise refuse("scipy.ndimage with output= has no derivative rule", "Use what the function returns")


def _correlate(input: Any, weights: Any, output: Any, mode: Any, cval: Any, origin: Any, axes: Any) -> Any:
    _no_output(output)
    n = np.ndim(input)
    if axes is not None:
        axes = [axis % n for axis in np.atleast_1d(axes)]
        weights = np.expand_dims(weights, [axis for axis in range(n) if axis not in axes])
    return _correlated(input, weights, _each(mode, n), cval, _each(origin, n))


@formula(ndimage, "correlate")
def correlate(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0,
    *, axes: Any = None,
) -> Any:  # fmt: skip
    return _correlate(input, np.asarray(weights), output, mode, cval, origin, axes)


@formula(ndimage, "convolve")
def convolve(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0,
    *, axes: Any = None,
) -> Any:  # fmt: skip
    weights = np.asarray(weights)
    shifts = [-shift - (k % 2 == 0) for shift, k in zip(_each(origin, weights.ndim), weights.shape)]
    return _correlate(input, np.flip(weights), output, mode, cval, shifts, axes)


def _along(x: Any, w: Any, axis: int, mode: str, cval: Any, origin: int = 0) -> Any:
    shape = [1] * np.ndim(x)
    shape[axis] = -1
    shifts = [0] * np.ndim(x)
    shifts[axis] = origin
    return _correlated(x, np.reshape(w, shape), [mode] * np.ndim(x), cval, shifts)


@formula(ndimage, "correlate1d")
def correlate1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: int = 0,
) -> Any:  # fmt: skip
    _no_output(output)
    return _along(input, weights, axis, mode, cval, origin)


@formula(ndimage, "convolve1d")
def convolve1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: int = 0,
) -> Any:  # fmt: skip
    _no_output(output)
    return _along(input, np.flip(weights), axis, mode, cval, -origin - (np.size(plain(weights)) % 2 == 0))


def _kernel(sigma: float, order: int, truncate: float, radius: Any) -> Any:
    reach = int(truncate * float(sigma) + 0.5) if radius is None else radius
    spike = np.zeros(4 * reach + 1)
    spike[2 * reach] = 1.0
    return np.flip(ndimage.gaussian_filter1d(spike, sigma, order=order, radius=reach)[reach : 3 * reach + 1])


@formula(ndimage, "gaussian_filter1d")
def gaussian_filter1d(
    input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None, mode: Any = "reflect",
    cval: Any = 0.0, truncate: float = 4.0, *, radius: Any = None,
) -> Any:  # fmt: skip
    _no_output(output)
    return _along(input, _kernel(sigma, order, truncate, radius), axis, mode, cval)


@formula(ndimage, "gaussian_filter")
def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    truncate: float = 4.0, *, radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    _no_output(output)
    axes = [axis % np.ndim(input) for axis in np.atleast_1d(axes)] if axes is not None else range(np.ndim(input))
    n = len(axes)
    given = zip(axes, _each(sigma, n), _each(order, n), _each(mode, n), _each(radius, n))
    for axis, one, turn, beyond, reach in given:
        if one > 1e-15:
            input = _along(input, _kernel(one, turn, truncate, reach), axis, beyond, cval)
    return input


@formula(ndimage, "uniform_filter1d")
def uniform_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: int = 0
) -> Any:
    _no_output(output)
    return _along(input, np.full(size, 1.0 / size), axis, mode, cval, origin)


@formula(ndimage, "uniform_filter")
def uniform_filter(
    input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0,
    *, axes: Any = None,
) -> Any:  # fmt: skip
    _no_output(output)
    axes = [axis % np.ndim(input) for axis in np.atleast_1d(axes)] if axes is not None else range(np.ndim(input))
    n = len(axes)
    for axis, one, beyond, shift in zip(axes, _each(size, n), _each(mode, n), _each(origin, n)):
        if one > 1:
            input = _along(input, np.full(one, 1.0 / one), axis, beyond, cval, shift)
    return input


@formula(ndimage, "laplace")
def laplace(input: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *, axes: Any = None) -> Any:
    _no_output(output)
    axes = [axis % np.ndim(input) for axis in np.atleast_1d(axes)] if axes is not None else range(np.ndim(input))
    total: Any = 0.0
    for axis, beyond in zip(axes, _each(mode, len(axes))):
        total = total + _along(input, np.array([1.0, -2.0, 1.0]), axis, beyond, cval)
    return total


def _edges(name: str, across: list[float]) -> None:
    @formula(ndimage, name)
    def edges(input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0) -> Any:
        _no_output(output)
        modes = _each(mode, np.ndim(input))
        result = _along(input, np.array([-1.0, 0.0, 1.0]), axis, modes[axis], cval)
        for other in range(np.ndim(input)):
            if other != axis % np.ndim(input):
                result = _along(result, np.array(across), other, modes[other], cval)
        return result


_edges("sobel", [1.0, 2.0, 1.0])
_edges("prewitt", [1.0, 1.0, 1.0])

refused_where_traced(
    ndimage,
    "map_coordinates zoom rotate shift affine_transform geometric_transform median_filter maximum_filter "
    "minimum_filter percentile_filter rank_filter generic_filter gaussian_laplace gaussian_gradient_magnitude "
    "spline_filter fourier_gaussian "
    "grey_dilation grey_erosion distance_transform_edt center_of_mass label "
    "sum_labels mean",
    "correlate, convolve, gaussian_filter, uniform_filter, laplace, sobel and prewitt have one",
)
