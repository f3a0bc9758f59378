"""A tree as one small text of bytes and the bytes of its arrays, and back.

The small part says what the containers are (``layout.py``), what each array is, and holds the leaves that are not
arrays, as data (``encoding.py``). Leaves that have no such form are refused, unless the caller allows pickle: then
one pickle stands for all of the small part. A pickle runs code when it is read, so it is read only where the caller
allows it, too. The arrays' bytes are not copied on the way out where they lie densely in memory, and are read
straight into the new arrays on the way back.
"""

from __future__ import annotations

import pickle as pickles
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import PebblingError, StoreError
from .arrays import Form
from .data import NotData, Unreadable
from .encoding import Reader, Writer
from .layout import read_structure, write_structure
from .leaves import PLAIN, Carried, kind_named, kind_of
from .structure import Structure, flatten, paths, unflatten

_DATA, _PICKLE, _OLD = b"peb\x01", b"peb\x02", b"\x80"
_CARRIED, _SAME = "carried", "same"
_LETTERS = {"numpy": b"n", "torch": b"t", "jax": b"j", _CARRIED: b"c", _SAME: b"="}
_NAMES = {letter: name for name, letter in _LETTERS.items()}


def pack(tree: Any, pickle: bool = False) -> tuple[bytes, list[np.ndarray]]:
    """What ``Layout`` needs to make such a tree, and the bytes of its arrays in order.

    >>> meta, buffers = pack({"u": np.arange(3, dtype="u1"), "step": 3})
    >>> [buffer.tolist() for buffer in buffers]
    [[0, 1, 2]]
    """
    leaves, structure = flatten(tree)
    entries: list[tuple[str, Any]] = []
    buffers: list[np.ndarray] = []
    seen: dict[int, int] = {}
    for index, leaf in enumerate(leaves):
        kind = kind_of(leaf)
        if kind is PLAIN:
            entries.append((_CARRIED, leaf))
        elif (first := seen.setdefault(id(leaf), index)) != index:
            entries.append((_SAME, first))
        elif isinstance(kind, Carried):
            entries.append((_CARRIED, leaf))
        else:
            spec, data = kind.pack(leaf)
            entries.append((kind.name, spec))
            buffers.append(data)
    try:
        return _encoded(structure, entries), buffers
    except NotData as error:
        if not pickle:
            raise StoreError(_refusal(structure, entries, error)) from None
    try:
        return _PICKLE + pickles.dumps((structure, entries), 5), buffers
    except Exception as error:
        raise StoreError(_unpicklable(structure, leaves, error)) from error


class Layout:
    """What a packed tree looks like: makes room for its bytes, then the tree.

    Raises ``Unreadable`` for what is damaged or forged, and a ``StoreError`` for what this program can't make, or
    may not unless ``pickle`` is true.
    """

    def __init__(self, meta: bytes, pickle: bool = False) -> None:
        self._meta = meta
        self._pickle = pickle
        self._structure, self._entries = self._load()
        self._sizes = [kind_named(name).size(what) for name, what in self._entries if name not in (_CARRIED, _SAME)]
        # What is carried may change in the hands of who gets it: it is read again each time.
        self._fixed = all(name != _CARRIED or kind_of(what) is PLAIN for name, what in self._entries)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers."""
        return sum(self._sizes)

    @property
    def forms(self) -> list[Form]:
        """What the bytes in each buffer are."""
        return [kind_named(name).form(what) for name, what in self._entries if name not in (_CARRIED, _SAME)]

    def allocate(self) -> tuple[list[np.ndarray], Callable[[], Any]]:
        """Buffers to fill, and what turns them into the tree once they are full."""
        structure, entries = (self._structure, self._entries) if self._fixed else self._load()
        buffers: list[np.ndarray] = []
        finishers: list[tuple[str, Any]] = []
        with _Sound():
            for name, what in entries:
                if name not in (_CARRIED, _SAME):
                    buffer, what = kind_named(name).make(what)
                    buffers.append(buffer)
                finishers.append((name, what))
        return buffers, lambda: _finish(structure, finishers)

    def _load(self) -> tuple[Structure, list[tuple[str, Any]]]:
        start = self._meta[: len(_DATA)]
        if start == _DATA:
            return _decoded(self._meta)
        if start != _PICKLE and start[:1] != _OLD:
            raise Unreadable("it does not begin as a description does")
        if not self._pickle:
            raise StoreError(
                "it holds pickled objects, and a pickle runs code when it is read: open the store with pickle=True "
                "if nobody but you can write to it"
            )
        with _Sound():
            structure, entries = pickles.loads(self._meta[len(_PICKLE) if start == _PICKLE else 0 :])
        return structure, entries


class _Sound:
    """Turns what goes wrong in code of others, on the way back to a tree, into a ``StoreError``."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, PebblingError | Unreadable | MemoryError):
            raise StoreError(f"it needs what this program does not have: {error}") from error


def _encoded(structure: Structure, entries: list[tuple[str, Any]]) -> bytes:
    writer = Writer()
    writer.content += _DATA
    write_structure(writer, structure)
    writer.size(len(entries))
    for name, what in entries:
        writer.content += _LETTERS[name]
        writer.value(what)
    return bytes(writer.content)


def _decoded(meta: bytes) -> tuple[Structure, list[tuple[str, Any]]]:
    try:
        reader = Reader(meta)
        reader.take(len(_DATA))
        structure = read_structure(reader)
        entries = [_entry(reader, index) for index in range(reader.count())]
    except LookupError as error:
        raise StoreError(f"it needs what this program does not have: {error}") from None
    except (Unreadable, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Unreadable(f"its description makes no sense: {error}") from None
    if reader.left or len(entries) != _leaves(structure):
        raise Unreadable("its description has another number of leaves than it says")
    return structure, entries


def _entry(reader: Reader, index: int) -> tuple[str, Any]:
    name = _NAMES.get(reader.take(1))
    if name is None:
        raise Unreadable("a leaf of no kind")
    what = reader.value()
    if name == _SAME and not (type(what) is int and 0 <= what < index):
        raise Unreadable("a leaf that is the same as one that comes later")
    return name, what


def _leaves(structure: Structure) -> int:
    return 1 if structure is None else sum(map(_leaves, structure[2]))


def _finish(structure: Structure, finishers: list[tuple[str, Any]]) -> Any:
    leaves: list[Any] = []
    with _Sound():
        for name, what in finishers:
            if name == _CARRIED:
                leaves.append(what)
            elif name == _SAME:
                leaves.append(leaves[what])
            else:
                leaves.append(what())
        return unflatten(structure, leaves)


def _refusal(structure: Structure, entries: list[tuple[str, Any]], error: NotData) -> str:
    """Which leaf is not data, and what to do."""
    what = f"the state holds {error}"
    for path, (name, content) in zip(paths(structure), entries):
        if name == _CARRIED:
            try:
                Writer().value(content)
            except NotData as found:
                what = f"{path} is {found}"
                break
    return (
        f"{what}, which is not data: stores write arrays, numbers, text, random generators, dates and containers of "
        "these. Keep it out of the state, say how to take it apart with pebbling.tree.register, or make the store with "
        "pickle=True, for a place that nobody else can write to"
    )


def _unpicklable(structure: Structure, leaves: list[Any], error: Exception) -> str:
    for path, leaf in zip(paths(structure), leaves):
        if isinstance(kind_of(leaf), Carried):
            try:
                pickles.dumps(leaf, 5)
            except Exception:
                return (
                    f"{path}, a {type(leaf).__qualname__}, can't be pickled ({error}): keep it out of the state, "
                    "or say how to write it with pebbling.tree.register"
                )
    return f"the structure of the state can't be pickled: {error}"
