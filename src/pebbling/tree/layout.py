"""The containers of a tree as data: which they are, their keys and names, in order."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any

from .classes import check_attribute, class_named, declared, is_fields, is_named_tuple, name_of
from .data import NotData, Unreadable
from .encoding import DEEPEST, Reader, Writer, hashable
from .structure import Structure, has_attributes, node_of

_LEAF, _NAMED = b"-", b"*"
_LETTERS: dict[type, bytes] = {
    dict: b"{", OrderedDict: b"o", defaultdict: b"d", list: b"[", tuple: b"(", SimpleNamespace: b"."
}  # fmt: skip
_CLASSES = {letter: cls for cls, letter in _LETTERS.items()}
_PLACES = (list, tuple)


def write_structure(writer: Writer, structure: Structure, depth: int = 0) -> None:
    """Write a structure; ``NotData`` if it has a class or a key that can't be."""
    if structure is None:
        writer.content += _LEAF
        return
    if depth > DEEPEST:
        raise NotData(f"a container nested more than {DEEPEST} deep, or one that holds itself")
    cls, rest, children = structure
    letter = _LETTERS.get(cls)
    if letter is not None:
        writer.content += letter
    else:
        name = name_of(cls)
        if name is None:
            raise NotData(f"a {cls.__module__}.{cls.__qualname__}, a class that can't be found by this name")
        writer.content += _NAMED
        writer.text(name)
        writer.value(_declared(cls))
    if cls not in _PLACES:
        writer.value(rest)
    writer.size(len(children))
    for child in children:
        write_structure(writer, child, depth + 1)


def read_structure(reader: Reader, depth: int = 0) -> Structure:
    """What was written, as far as it makes sense; a ``LookupError`` for a class that is not there or not as it was."""
    if depth > DEEPEST:
        raise Unreadable(f"nested more than {DEEPEST} deep")
    letter = reader.take(1)
    if letter == _LEAF:
        return None
    cls: type
    if letter == _NAMED:
        cls = class_named(reader.text())
        written = reader.value()
        if written != _declared(cls):
            raise LookupError(f"{cls.__qualname__} was written with the fields {written} and has {_declared(cls)} now")
    elif letter in _CLASSES:
        cls = _CLASSES[letter]
    else:
        raise Unreadable(f"{letter!r} is the letter of no container")
    rest = None if cls in _PLACES else reader.value()
    children = tuple([read_structure(reader, depth + 1) for _ in range(reader.count())])
    _check(cls, rest, len(children))
    return (cls, rest, children)


def _declared(cls: type) -> tuple[str, ...] | None:
    """The names that a class declares for its parts, if it does."""
    if is_named_tuple(cls):
        return tuple(cls._fields)  # type: ignore[attr-defined]
    return declared(cls) if is_fields(cls) else None


def _check(cls: type, rest: Any, count: int) -> None:
    """Raise unless a container can be built of that many children."""
    if cls in (dict, OrderedDict):
        _names(rest, count, None)
    elif cls is defaultdict:
        if not isinstance(rest, tuple) or len(rest) != 2 or not (rest[0] is None or isinstance(rest[0], type)):
            raise Unreadable("a defaultdict without a factory")
        _names(rest[1], count, None)
    elif has_attributes(cls):
        _names(rest, count, str)
        for name in rest:
            check_attribute(cls, name)
    elif is_named_tuple(cls) and (count != len(_declared(cls) or ()) or rest != _declared(cls)):
        raise Unreadable(f"a {cls.__qualname__} of {count} fields")
    elif node_of(cls) is None:
        raise LookupError(f"{cls.__qualname__} is no container in this program")


def _names(keys: Any, count: int, kind: type | None) -> None:
    if not isinstance(keys, tuple) or len(keys) != count or len({hashable(key) for key in keys}) != count:
        raise Unreadable("keys that are not one for each child")
    if kind is not None and not all(isinstance(key, kind) for key in keys):
        raise Unreadable("names that are no text")
