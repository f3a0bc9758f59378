"""The containers of a tree: which types are taken apart, and how they are put together again.

Taken apart are dict, OrderedDict, defaultdict, list, tuple, named tuples, dataclasses, classes of
attrs, SimpleNamespace, what other packages say of their own types (``foreign.py``), and what was given
to ``register``. Everything else is a leaf, subclasses of these containers included, since only their
authors know what else they hold. How a type is handled is found once and remembered.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from .classes import declared, is_fields, is_named_tuple, remember
from .foreign import foreign_node

Structure: TypeAlias = tuple[type, Any, tuple["Structure", ...]] | None
"""``None`` for a leaf; otherwise the type, what it needs beside its children, and their structures."""


class Node(NamedTuple):
    """How one type of container is handled."""

    parts: Callable[[Any], tuple[Iterable[Any], Any]]
    """The children, and what else it takes to build it."""
    build: Callable[[type, Any, list[Any]], Any]
    """From the type, that, and the children."""
    names: Callable[[Any, int], Sequence[str]]
    """How the children are written after the name of the container."""


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and what it takes to put them together again.

    >>> flatten({"u": 1.0, "v": [2.0, None]})
    ([1.0, 2.0, None], (<class 'dict'>, ('u', 'v'), (None, (<class 'list'>, None, (None, None)))))
    """
    leaves: list[Any] = []
    try:
        return leaves, _take(tree, leaves)
    except RecursionError:
        raise ValueError(
            f"a {type(tree).__name__} holds itself, or is nested too deep: a state is a tree of finite depth"
        ) from None


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of that structure with these leaves.

    >>> leaves, structure = flatten((1, {"a": 2}))
    >>> unflatten(structure, [10 * leaf for leaf in leaves])
    (10, {'a': 20})
    """
    return _build(structure, iter(leaves))


def register(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, list[Any]], Any],
) -> None:
    """Let trees hold objects of ``cls``.

    ``flatten(value)`` gives the children (trees themselves) and whatever else it takes to rebuild
    the object, which is kept as it is, is never copied, and must be data (numbers, text, containers
    of these) where a store writes files; ``unflatten(rest, children)`` gives an equal object. A file
    may name the class from then on.
    """
    remember(cls)
    _NODES[cls] = Node(flatten, lambda _, rest, children: unflatten(rest, children), _numbered)


def paths(structure: Structure, root: str = "state") -> list[str]:
    """What each leaf is called in messages.

    >>> paths(flatten({"u": 1.0, "v": [2.0, None]})[1])
    ["state['u']", "state['v'][0]", "state['v'][1]"]
    """
    if structure is None:
        return [root]
    cls, rest, children = structure
    names = node_of(cls).names(rest, len(children))  # type: ignore[union-attr]
    return [path for name, child in zip(names, children) for path in paths(child, root + name)]


def node_of(cls: type) -> Node | None:
    """How a type is taken apart; ``None`` for a leaf."""
    try:
        return _NODES[cls]
    except KeyError:
        return _NODES.setdefault(cls, _resolve(cls))


def has_attributes(cls: type) -> bool:
    """Whether objects of a class are taken apart into their attributes, and so rebuilt from these."""
    return node_of(cls) is _FIELDS


def _take(tree: Any, leaves: list[Any]) -> Structure:
    cls = type(tree)
    node = node_of(cls)
    if node is None:
        leaves.append(tree)
        return None
    children, rest = node.parts(tree)
    return (cls, rest, tuple([_take(child, leaves) for child in children]))


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return next(leaves)
    cls, rest, children = structure
    return node_of(cls).build(cls, rest, [_build(child, leaves) for child in children])  # type: ignore[union-attr]


def _resolve(cls: type) -> Node | None:
    if is_named_tuple(cls):
        return _NAMED
    if is_fields(cls):
        return _FIELDS
    found = foreign_node(cls)
    if found is None:
        return None
    # A file may name what the program's own packages take apart.
    remember(cls)
    return Node(*found)


def _attributes(value: Any) -> tuple[list[Any], tuple[str, ...]]:
    names = list(declared(type(value)) or ())
    names = [name for name in names if hasattr(value, name)]
    names += [name for name in getattr(value, "__dict__", ()) if name not in names]
    return [getattr(value, name) for name in names], tuple(names)


def _from_attributes(cls: type, names: tuple[str, ...], children: list[Any]) -> Any:
    # Neither __init__ nor __post_init__ runs: the object is to be what it was, not what they would make of it.
    value: Any = SimpleNamespace() if cls is SimpleNamespace else object.__new__(cls)
    for name, child in zip(names, children):
        object.__setattr__(value, name, child)
    return value


def _numbered(rest: Any, count: int) -> list[str]:
    return [f"[{index}]" for index in range(count)]


def _keyed(keys: tuple[Any, ...], count: int) -> list[str]:
    return [f"[{key!r}]" for key in keys]


def _dotted(names: tuple[str, ...], count: int) -> list[str]:
    return [f".{name}" for name in names]


_MAPPING = Node(
    lambda value: (value.values(), tuple(value)), lambda cls, keys, children: cls(zip(keys, children)), _keyed
)
_DEFAULT = Node(
    lambda value: (value.values(), (value.default_factory, tuple(value))),
    lambda cls, rest, children: cls(rest[0], zip(rest[1], children)),
    lambda rest, count: _keyed(rest[1], count),
)
_SEQUENCE = Node(lambda value: (value, None), lambda cls, _, children: cls(children), _numbered)
_NAMED = Node(
    lambda value: (value, type(value)._fields), lambda cls, _, children: tuple.__new__(cls, children), _dotted
)
_FIELDS = Node(_attributes, _from_attributes, _dotted)
_NODES: dict[type, Node | None] = {
    dict: _MAPPING,
    OrderedDict: _MAPPING,
    defaultdict: _DEFAULT,
    list: _SEQUENCE,
    tuple: _SEQUENCE,
    SimpleNamespace: _FIELDS,
}
