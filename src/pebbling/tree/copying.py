"""Private copies of trees, and their size.

Two leaves that are one object stay one object in the copy: a step that changes it through one name
sees the change through the other, as it did before. Views that share memory become separate.
"""

from __future__ import annotations

from typing import Any

from .leaves import PLAIN, kind_of
from .structure import flatten, unflatten


def copy(tree: Any) -> Any:
    """A tree that shares nothing with the first one that could change.

    >>> state = {"u": [1.0], "step": 3}
    >>> copy(state) == state, copy(state)["u"] is state["u"]
    (True, False)
    """
    leaves, structure = flatten(tree)
    if structure is None:
        return kind_of(tree).copy(tree)
    made: dict[int, Any] = {}
    copies = []
    for leaf in leaves:
        kind = kind_of(leaf)
        if kind is PLAIN:
            copies.append(leaf)
            continue
        private = made.get(id(leaf))
        if private is None:
            private = made[id(leaf)] = kind.copy(leaf)
        copies.append(private)
    return unflatten(structure, copies)


def nbytes(tree: Any) -> int:
    """The bytes of all arrays, one that occurs twice counted once, and of the pickles of other objects.

    >>> import numpy as np
    >>> nbytes({"u": np.zeros(10), "step": 3})
    80
    """
    leaves, structure = flatten(tree)
    if structure is None:
        return kind_of(tree).nbytes(tree)
    return sum([kind_of(leaf).nbytes(leaf) for leaf in {id(leaf): leaf for leaf in leaves}.values()])
