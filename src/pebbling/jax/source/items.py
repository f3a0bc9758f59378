"""What a ``for`` loop runs over, as rows that a compiled loop is given one by one.

A range is a function of the step. Arrays are rows already; the elements of lists and tuples, containers of
arrays included, are stacked, so they must be alike.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from ...errors import SourceError
from ...source.graph import Builder, Taken
from ...source.items import Joined, Keyed, Listed, Spanned, View
from ..compat import weakly_typed
from .shapes import form
from .types import is_array, is_number, same, type_of

Item = Callable[[Any, Sequence[Any]], Any]


class RowItems(NamedTuple):
    """The items of a loop: ``item(step, row)``, the row being one of each of ``arrays``."""

    arrays: list[Any]
    item: Item


def rows_of(view: View, where: str) -> RowItems:
    """The items of a view of known length."""
    if isinstance(view, Joined):
        return _joined(view, where)
    if isinstance(view, Keyed):
        if view.kind != "values":
            _refuse(where, f"runs over the {view.kind} of a dict, whose keys differ", "loop over its values()")
        return _stacked(list(view.mapping.values()), where)
    if isinstance(view, Spanned) or not isinstance(view, Listed):
        _refuse(
            where,
            "combines a range of traced bounds with other items",
            "loop over the range alone and index the arrays, or use pebbling.jax.fori_loop",
        )
    sequence = view.sequence
    if type(sequence) is range:
        return RowItems([], _member(sequence))
    if isinstance(sequence, str | bytes):
        _refuse(where, "runs over text", _UNROLL)
    if isinstance(sequence, list | tuple):
        return _stacked(list(sequence), where)
    return RowItems([jnp.asarray(sequence)], lambda _, row: row[0])


_UNROLL = "move the loop into a function of its own, without the decorator, and JAX unrolls it"


def _member(numbers: range) -> Item:
    start, stride = numbers.start, numbers.step
    if (start, stride) == (0, 1):
        return lambda step, _: step
    return lambda step, _: start + stride * step


def _joined(view: Joined, where: str) -> RowItems:
    parts = [rows_of(part, where) for part in view.parts]
    length = view.length
    if view.func is builtins.zip:
        ends = np.cumsum([0, *[len(part.arrays) for part in parts]])

        def together(step: Any, row: Sequence[Any]) -> Any:
            return tuple([part.item(step, row[a:b]) for part, a, b in zip(parts, ends, ends[1:])])

        return RowItems([array[:length] for part in parts for array in part.arrays], together)
    (part,) = parts
    if view.func is builtins.enumerate:
        start = view.start
        return RowItems(part.arrays, lambda step, row: (start + step, part.item(step, row)))
    return RowItems([array[::-1] for array in part.arrays], lambda step, row: part.item(length - 1 - step, row))


def _stacked(elements: list[Any], where: str) -> RowItems:
    """Elements of equal structure, leaf by leaf."""
    if not elements:
        return RowItems([], lambda step, row: None)
    shapes, leaves = [], []
    for element in elements:
        taken = Taken({}, apart=True)
        shapes.append(taken.take(element))
        leaves.append(taken.leaves)
    if any(form([shape]) != form(shapes[:1]) for shape in shapes):
        _refuse(where, "runs over elements of different structure", _UNROLL)
    arrays: list[Any] = []
    places: list[int | None] = []
    for column in zip(*leaves):
        if all(same(one, column[0]) for one in column):
            places.append(None)
            continue
        places.append(len(arrays))
        arrays.append(_column(column, where))

    def item(_: Any, row: Sequence[Any]) -> Any:
        chosen = [one if place is None else row[place] for one, place in zip(leaves[0], places)]
        return Builder(chosen).roots(shapes[:1])[0]

    return RowItems(arrays, item)


def _column(column: Sequence[Any], where: str) -> Any:
    if all(map(is_number, column)):
        return weakly_typed(jnp.asarray(np.asarray(column)))
    if not all(is_array(one) or is_number(one) for one in column):
        odd = next(one for one in column if not is_array(one) and not is_number(one))
        _refuse(where, f"runs over elements that are no arrays, such as {odd!r}", _UNROLL)
    types = {(type_of(one).shape, str(type_of(one).dtype)) for one in column}
    if len(types) > 1:
        listed = " and ".join(f"{kind}{list(shape)}" for shape, kind in sorted(types)[:2])
        _refuse(where, f"runs over arrays of different types, such as {listed}", _UNROLL)
    return jnp.stack(column)


def _refuse(where: str, reason: str, way_out: str) -> NoReturn:
    raise SourceError(f"{where}: the loop {reason}, and JAX compiles one step for all items: {way_out}")
