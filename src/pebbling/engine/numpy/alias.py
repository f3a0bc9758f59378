"""Assignment to traced arrays as NumPy means it: every name for the same memory sees it.

A traced array is assigned to by giving it a new value, so two names for one array agree by themselves.
A view (``y = x[1:]``) is another traced array. It keeps its base alive and knows how it came from it;
the base knows its views weakly. When one of them changes, its bases get the change written into them
and every other live view is taken again, so that all stay what NumPy would show. A new value keeps the
memory layout of the old one, because that decides whether a later ``reshape`` is a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from .construct import array, holds_traced
from .indexing import is_basic
from .refuse import refuse
from .traced import Traced, highest, is_array, plain


class Alias:
    """How one traced array shares memory with others."""

    __slots__ = ("again", "base", "exposed", "index", "refusal", "views")

    def __init__(self, base: Any = None, again: Callable[[Any], Any] | None = None, index: Any = None) -> None:
        self.base = base
        self.again = again
        self.index = index
        self.views: list[ref[Traced]] | None = None
        self.refusal: str | None = None
        self.exposed = False


def link(base: Traced, view: Traced, again: Callable[[Any], Any] | None, index: Any = None) -> None:
    """Note that ``view`` looks into ``base``: it is ``again(base)``, or ``base[index]``."""
    alias = base.alias
    if alias is None:
        alias = base.alias = Alias()
    if alias.views is None:
        alias.views = [ref(view)]
    else:
        count = len(alias.views)
        if count >= 16 and count & (count - 1) == 0:  # at 16, 32, 64, …, so that clearing costs little on average
            alias.views = [seen for seen in alias.views if seen() is not None]
        alias.views.append(ref(view))
    view.alias = Alias(base, again, index)


def shares(view: Any, base: Any) -> bool:
    """Whether a value that a function returned looks into the memory of its argument."""
    view, base = plain(view), plain(base)
    if not isinstance(view, np.ndarray) or view.base is None or not isinstance(base, np.ndarray):
        return False
    return view.base is base or (base.base is not None and view.base is base.base)


def assign(x: Any, index: Any, part: Any) -> None:
    """``x[index] = part``."""
    if not is_array(x):
        raise TypeError(f"{type(plain(x)).__name__!r} object does not support item assignment")
    alias = x.alias
    if alias is not None and _is_own_view(x, index, part):
        return
    if holds_traced(part):
        part = array(part)
    if x.blank and highest((part,)) is None:
        x.write(index, part)
        return
    _check(x, part)
    if np.iscomplexobj(plain(part)) and x.dtype.kind != "c":
        raise TypeError(f"can't assign complex numbers into an array of {x.dtype}")
    strides = plain(x).strides
    x.write(index, part)
    _changed(x, strides)


def augment(x: Any, new: Any) -> Any:
    """``x += …`` where ``new`` is ``x + …``: an array changes in place, a number is replaced."""
    if not is_array(x):
        return new
    if x.blank and highest((new,)) is None:
        _check_fits(x, new)
        return x.fill_from(new)
    _check(x, new)
    if not is_array(new):
        new = np.copy(new)  # a number becomes an array without axes
    _check_fits(x, new)
    if new.dtype != x.dtype:
        new = new.astype(x.dtype)
    strides = plain(x).strides
    x.become(new)
    _changed(x, strides)
    return x


def _check_fits(x: Any, new: Any) -> None:
    shape, dtype = np.shape(new), np.result_type(plain(new))
    if shape != x.shape:
        raise ValueError(f"non-broadcastable output operand with shape {x.shape} doesn't match {shape}")
    if dtype != x.dtype and not np.can_cast(dtype, x.dtype, "same_kind"):
        raise TypeError(f"can't cast the result from {dtype} to {x.dtype} in place")


def _is_own_view(x: Any, index: Any, part: Any) -> bool:
    # ``x[i] += v`` is ``t = x[i]; t += v; x[i] = t``, and the change of t has reached x already.
    alias = getattr(part, "alias", None)
    return alias is not None and alias.base is x and alias.again is None and is_basic(index) and index == alias.index


def _check(x: Any, part: Any) -> None:
    if x.alias is not None and x.alias.refusal is not None:
        raise refuse(x.alias.refusal, "Pass a copy of one of them")
    top = highest((x, part))
    if top is not None and top.level > x.level:
        raise refuse(
            "a value of an inner derivative was assigned into an array of an outer one",
            "Make the array inside the inner function, with np.zeros_like of one of its arguments",
        )


def _changed(x: Any, strides: tuple[int, ...], but: Any = None) -> None:
    """Bring all that shares memory with ``x`` in line with its new value; ``but`` is the view it came from."""
    alias = x.alias
    base = None if alias is None else alias.base
    if base is not None:
        before = plain(base).strides
        _write_back(base, x)
        _changed(base, before, but=x)
    if plain(x).strides != strides:
        if base is None:
            x.value = _laid_out(x.value, strides)
        else:
            x.become(_again(base, alias))
    if alias is not None:
        refresh(x, but)


def _again(base: Any, alias: Alias) -> Any:
    return base[alias.index] if alias.again is None else alias.again(base)


def refresh(x: Any, but: Any = None) -> None:
    """Take all views of ``x`` again, but one."""
    for seen in tuple(x.alias.views or ()) if x.alias is not None else ():
        view: Any = seen()
        if view is not None and view is not but:
            view.become(_again(x, view.alias))
            refresh(view)


def _laid_out(value: Any, strides: tuple[int, ...]) -> Any:
    """The same value in memory of the given strides."""
    if isinstance(value, Traced):
        return value.revalue(value, _laid_out(value.value, strides))
    reach = [(n - 1) * s for n, s in zip(value.shape, strides)]
    room = np.empty(sum(map(abs, reach)) + value.itemsize, np.uint8)
    new: Any = np.ndarray(value.shape, value.dtype, room, -sum(r for r in reach if r < 0), strides)
    new[...] = value
    return new


def _write_back(base: Any, view: Any) -> None:
    alias = view.alias
    if base.alias.refusal is not None:
        raise refuse(base.alias.refusal, "Pass a copy of one of them")
    if alias.again is None:
        base.write(alias.index, view)
        return
    if view.dtype != base.dtype:
        raise refuse("an assignment through .real or .imag has no derivative rule", "Assign to the array itself")
    positions = alias.again(np.arange(base.size).reshape(base.shape))
    if np.unique(positions).size < positions.size:
        raise ValueError("assignment destination is read-only: several of its elements are the same memory")
    elements = np.copy(np.reshape(base, -1))
    elements[positions] = view
    base.become(np.reshape(elements, base.shape))
