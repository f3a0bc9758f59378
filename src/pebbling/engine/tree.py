"""Trees of arrays: lists, tuples, named tuples, dicts and dataclasses, taken apart and put together again.

``None`` is a tree without leaves; whatever is not a container is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Tree: TypeAlias = Any
Rebuild: TypeAlias = Callable[[Iterator[Any]], Tree]


def flatten(tree: Tree) -> tuple[list[Any], Rebuild]:
    """The leaves of a tree in order, and a function that builds the same tree from new leaves.

    >>> leaves, rebuild = flatten({"a": 1, "b": (2, 3)})
    >>> leaves, rebuild(iter([10, 20, 30]))
    ([1, 2, 3], {'a': 10, 'b': (20, 30)})
    """
    leaves: list[Any] = []
    return leaves, _take_apart(tree, leaves)


def paths(tree: Tree, prefix: str = "") -> list[str]:
    """Where each leaf stands, as one would write it: ``['w'][0].bias``."""
    if (children := _children(tree)) is None:
        return [prefix]
    return [path for step, child in children for path in paths(child, prefix + step)]


def _children(tree: Tree) -> list[tuple[str, Tree]] | None:
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [(f"[{key!r}]", child) for key, child in tree.items()]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{name}", child) for name, child in zip(tree._fields, tree)]
    if isinstance(tree, list | tuple):
        return [(f"[{i}]", child) for i, child in enumerate(tree)]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f".{field.name}", getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def _take_apart(tree: Tree, leaves: list[Any]) -> Rebuild:
    children = _children(tree)
    if children is None:
        leaves.append(tree)
        return next
    parts = [_take_apart(child, leaves) for _, child in children]
    if tree is None:
        return lambda new: None
    kind: Any = type(tree)
    if isinstance(tree, dict):
        keys = list(tree)
        return lambda new: kind((key, part(new)) for key, part in zip(keys, parts))
    if hasattr(kind, "_fields"):
        return lambda new: kind(*[part(new) for part in parts])
    if isinstance(tree, list | tuple):
        return lambda new: kind([part(new) for part in parts])
    names = [field.name for field in dataclasses.fields(tree)]
    return lambda new: _rebuild_dataclass(kind, names, [part(new) for part in parts])


def _rebuild_dataclass(kind: Any, names: list[str], values: list[Any]) -> Any:
    # Around __init__, which may compute, convert or refuse: the fields are already what it made of them.
    new = object.__new__(kind)
    for name, value in zip(names, values):
        object.__setattr__(new, name, value)
    return new
