"""What Python itself takes to keep track of states: tables, tuples and the headers of arrays.

With states of some kilobytes this is a tenth of a budget, so it is counted and not guessed: tables grow by leaps.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..chain.binomial import repeats
from ..chain.revolve import REMEMBERED
from ..tree import flatten
from ..tree.structure import node_of

_TABLES = 2  # of the shelf and of the run, by slot; that of the holdings is by leaf
_ENTRY = 320  # the keys of a slot, and its place among what waits to be reversed
_SPLIT, _LARGE = 100, 70  # what a plan takes to remember how it splits a span of steps, and numbers above 256


def tracked(slots: int, leaves: int, snapshot: int) -> int:
    """The bytes that it takes to keep track of so many snapshots of so many bytes and leaves each."""
    tables = _TABLES * _table(slots, snapshot) + _table(slots * leaves, max(1, snapshot // max(1, leaves)))
    return tables + slots * (_ENTRY + _LARGE * (slots > 256))


def planned(steps: int, slots: int) -> int:
    """The bytes that binomial checkpointing takes to remember its splits: some for each slot, of a bounded number."""
    if slots < 2:
        return 0
    return (_SPLIT + _LARGE * (steps > 1000)) * min(
        steps, REMEMBERED, (slots - 1) * (2 * repeats(steps, slots) + 7) // 2
    )


def own_size(tree: Any) -> int:
    """The bytes that a tree takes in memory, its containers included."""
    leaves, _ = flatten(tree)
    return sum(_size(leaf) for leaf in {id(leaf): leaf for leaf in leaves}.values()) + _containers(tree)


def _size(leaf: Any) -> int:
    size, base = sys.getsizeof(leaf), getattr(leaf, "base", None)
    return size + (sys.getsizeof(base) if isinstance(base, np.ndarray) else 0)


def _containers(tree: Any) -> int:
    node = node_of(type(tree))
    if node is None:
        return 0
    return sys.getsizeof(tree) + sum(_containers(child) for child in node.parts(tree)[0])


def _table(entries: int, between: int) -> int:
    """The bytes of a dict, and of the one that it has just outgrown, unless ``between`` each entry there is more."""
    places, before, since = 8, 0, 0
    while entries > _usable(places):
        before, since = _bytes(places), _usable(places)
        places = 1 << (3 * since - 1).bit_length()
    return _bytes(places) + max(0, before - (entries - since) * between)


def _usable(places: int) -> int:
    return places * 2 // 3


def _bytes(places: int) -> int:
    """An index of small numbers, and the entries, each with a hash, a key and a value."""
    return 96 + places * (1 if places <= 256 else 2 if places <= 65536 else 4) + 24 * _usable(places)
