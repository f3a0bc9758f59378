"""Dtypes and shapes as data: read from files that nobody vouches for, so never with Python objects in them."""

from __future__ import annotations

import math
import re
from importlib import import_module
from typing import Any

import numpy as np

from .data import NotData, Unreadable

_TEXT = re.compile(r"[<>|=]?(\?|[biufcSUVmM][0-9]{1,9}(\[[0-9]{0,9}[A-Za-z]{1,2}(/[0-9]{1,9})?\])?)")
_SMALL = re.compile(r"(b?float|u?int)[0-9a-z_]{1,20}")
_LARGEST = 1 << 62
_AXES = 64


def described(dtype: np.dtype) -> Any:
    """What ``from_description`` makes the dtype of: text where that says all of it, else its parts."""
    if dtype.hasobject or dtype.metadata is not None:
        raise NotData(f"an array of {dtype}, which holds Python objects or notes on its dtype")
    if dtype.subdtype is not None:
        return ("array", described(dtype.subdtype[0]), dtype.subdtype[1])
    if dtype.names is not None and dtype.fields is not None:
        fields = [(name, *_field(dtype.fields[name])) for name in dtype.names]
        return ("fields", fields, dtype.itemsize, dtype.isalignedstruct)
    if dtype.kind == "V" and dtype.type is not np.void:
        return ("small", dtype.name)
    return dtype.str


def from_description(what: Any) -> np.dtype:
    """The dtype, or ``Unreadable``; none that holds objects."""
    try:
        dtype = _made(what, 0)
    except (TypeError, ValueError, OverflowError, AttributeError, LookupError, SyntaxError) as error:
        raise Unreadable(f"{what!r} describes no dtype: {error}") from None
    if dtype.hasobject:
        raise Unreadable(f"{what!r} describes Python objects")
    return dtype


def checked(shape: Any, order: Any = None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """A shape and an order of its axes, or ``Unreadable``."""
    if not isinstance(shape, tuple) or len(shape) > _AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise Unreadable(f"{shape!r} is no shape")
    if order is not None and (not isinstance(order, tuple) or sorted(order, key=_number) != list(range(len(shape)))):
        raise Unreadable(f"{order!r} is no order of {len(shape)} axes")
    if math.prod(n for n in shape if n) >= _LARGEST:
        raise Unreadable(f"no array has the shape {shape}")
    return shape, order


def size(dtype: np.dtype, shape: tuple[int, ...]) -> int:
    """The bytes of an array."""
    return dtype.itemsize * math.prod(shape)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise Unreadable(f"{value!r} is no axis")
    return value


def _field(field: Any) -> tuple[Any, int, str | None]:
    title = field[2] if len(field) > 2 else None
    if title is not None and not isinstance(title, str):
        raise NotData(f"an array with a field whose title is {title!r}")
    return described(field[0]), field[1], title


def _made(what: Any, depth: int) -> np.dtype:
    if depth > 16:
        raise ValueError("nested too deep")
    if isinstance(what, str):
        if not _TEXT.fullmatch(what):
            raise ValueError("not a dtype of numbers, text or bytes")
        return np.dtype(what)
    kind, *parts = what
    if kind == "array":
        shape, _ = checked(parts[1])
        return np.dtype((_made(parts[0], depth + 1), shape))
    if kind == "small":
        if not _SMALL.fullmatch(parts[0]):
            raise ValueError("not a small float or integer")
        return np.dtype(getattr(import_module("ml_dtypes"), parts[0]))
    if kind != "fields":
        raise ValueError("unknown")
    fields, itemsize, aligned = parts
    names, inner, offsets, titles = zip(*fields) if fields else ((), (), (), ())
    formats = [_made(each, depth + 1) for each in inner]
    if type(itemsize) is not int or not all(
        type(offset) is int and 0 <= offset <= itemsize - made.itemsize for offset, made in zip(offsets, formats)
    ):
        raise ValueError("fields outside of it")
    made = {"names": list(names), "formats": formats, "offsets": list(offsets), "itemsize": itemsize}
    if any(title is not None for title in titles):
        made["titles"] = list(titles)
    return np.dtype(made, align=bool(aligned))  # type: ignore[call-overload]
