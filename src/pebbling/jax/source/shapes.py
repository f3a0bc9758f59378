"""Shapes of objects compared: their structure, the order of keys, which objects were there before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...source.graph import Shape

_LEAF = "leaf"


def form(shapes: Iterable[Shape]) -> list[Any]:
    """Shapes without tokens: equal for objects of the same structure, whatever their leaves are."""
    count, order = [0], dict[int, int]()

    def of(shape: Shape) -> Any:
        if shape is None:
            return _LEAF
        if type(shape) is int:
            count[0] += 1
            return _LEAF
        if len(shape) == 2:
            return shape[0], order[shape[1]]
        cls, _, rest, children = shape
        order[count[0]] = len(order)
        count[0] += 1
        return cls, rest, tuple([of(child) for child in children])

    return [of(shape) for shape in shapes]


def in_order(old: Shape, new: Shape, places: Iterator[int]) -> tuple[Shape, list[int]]:
    """A shape with the keys of its dicts in the order of another one, and the places where its leaves were."""
    if type(old) is not tuple:
        return old, [next(places)]
    if len(old) == 2:
        return old, []
    cls, token, rest, children = old
    alike = type(new) is tuple and len(new) == 4 and new[0] is cls and len(new[3]) == len(children)
    if not alike or not issubclass(cls, dict) or set(new[2]) != set(rest):
        found = [in_order(one, two, places) for one, two in zip(children, new[3] if alike else children)]
        return (cls, token, rest, tuple([one for one, _ in found])), [place for _, part in found for place in part]
    first = len(rest) - len(children)  # what comes before the keys
    keys, wanted = rest[first:], new[2][first:]
    later = dict(zip(wanted, new[3]))
    parts = {key: in_order(one, later.get(key), places) for key, one in zip(keys, children)}
    ordered = [parts[key] for key in wanted if key in parts]
    shape = (cls, token, (*rest[:first], *wanted), tuple([one for one, _ in ordered]))
    return shape, [place for _, part in ordered for place in part]


def tokens_of(shapes: Iterable[Shape]) -> list[int]:
    """The tokens of all containers."""
    found: list[int] = []
    for shape in shapes:
        if type(shape) is tuple and len(shape) == 4:
            found += [shape[1], *tokens_of(shape[3])]
    return found


def refers(shape: Shape) -> bool:
    """Whether one object is reached in two ways."""
    return type(shape) is tuple and (len(shape) == 2 or any(map(refers, shape[3])))
