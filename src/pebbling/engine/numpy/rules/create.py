"""Arrays made from traced ones: copies, other dtypes, arrays of zeros that traced values can be assigned into."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..indexing import scatter
from ..table import composed, primitive, rule
from ..traced import Traced, highest, plain


@rule(np.copy)
def copy(y: Any, x: Any, order: Any = "K", subok: bool = False) -> Any:
    return [lambda g: g], [lambda t: t]


def _item(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


@primitive(_item)
def item(y: Any, x: Any) -> Any:
    shape = np.shape(x)
    return [lambda g: np.reshape(g, shape)], [lambda t: np.reshape(t, ())[()]]


def _is_real_number(dtype: Any) -> bool:
    return np.dtype(dtype).kind in "fc"


def _as_type(x: Any, dtype: Any, **kwargs: Any) -> Any:
    return x.astype(dtype, **kwargs) if hasattr(x, "astype") else np.dtype(dtype).type(x)


@primitive(_as_type, view=True)
def cast(y: Any, x: Any, dtype: Any, *, copy: bool = True, order: Any = "K", casting: Any = "unsafe") -> Any:
    """``x.astype`` between floating-point and complex types."""
    return [lambda g: g], [lambda t: _as_type(t, dtype)]


def astype(x: Any, dtype: Any, **kwargs: Any) -> Any:
    """``x.astype(dtype)``: integers and the like are plain, for they have no derivative."""
    if not _is_real_number(dtype):
        return _as_type(plain(x), dtype, **kwargs)
    if x.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        x = np.real(x)
    return cast(x, dtype, **kwargs)


if hasattr(np, "astype"):  # NumPy 2.1 on
    composed(np.astype, exact=True)(astype)


def _like(func: Any) -> Any:
    def make(a: Any, *args: Any, **kwargs: Any) -> Any:
        top = highest((a,))
        value = func(plain(a), *args, **kwargs)
        return top.constant(value) if top is not None and _is_real_number(value.dtype) else value

    return make


for like in (np.zeros_like, np.ones_like, np.empty_like):
    composed(like, exact=True)(_like(like))


@composed(np.full_like, exact=True)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None
) -> Any:
    value = np.full_like(plain(a), plain(fill_value), dtype=dtype, order=order, shape=shape)
    top = highest((a, fill_value))
    if top is None or not _is_real_number(value.dtype):
        return value
    result: Any = top.constant(value)
    if isinstance(fill_value, Traced):
        result[...] = fill_value
    return result


@composed(np.linspace)
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    parts = num - 1 if endpoint else num
    shape = (num,) + (1,) * max(np.ndim(start), np.ndim(stop))
    share = np.reshape(np.arange(num) / max(parts, 1), shape)
    result = start * (1 - share) + stop * share
    result = np.moveaxis(np.reshape(result, np.shape(result) or (num,)), 0, axis)
    return (result, (stop - start) / parts) if retstep else result


@composed(np.meshgrid, exact=True)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    n = len(xi)
    axes = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    grids = [np.reshape(x, [-1 if i == axis else 1 for i in range(n)]) for x, axis in zip(xi, axes)]
    grids = grids if sparse else list(np.broadcast_arrays(*grids))
    return tuple([np.copy(grid) if copy else grid for grid in grids])


def _joined(*leaves: Any, value: Any, places: Any) -> Any:
    return value


@primitive(_joined, arrays=slice(None))
def joined(y: Any, *leaves: Any, value: Any, places: Any) -> Any:
    """An array of nested lists: ``leaves`` stand at ``places`` in it, and ``value`` is what it is."""
    shape, dtype = np.shape(value), value.dtype

    def cut(place: Any) -> Any:
        return lambda g: g[place]

    def fill(place: Any) -> Any:
        return lambda t: scatter(t, place, shape, dtype)

    return [cut(place) for place in places], [fill(place) for place in places]
