"""``np.array`` and ``np.asarray`` for lists of traced numbers, which NumPy does not hand over to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .traced import Traced


def array(tree: Any, dtype: Any = None) -> Any:
    """An array of a traced array, or of nested lists of traced and plain numbers."""
    result: Any = tree
    if isinstance(tree, Traced):
        result = np.copy(result)
    elif holds_traced(tree):
        result = np.stack([array(part) for part in tree])
    else:
        result = np.array(tree)
    return result if dtype is None else result.astype(dtype)


def asarray(tree: Any, dtype: Any = None) -> Any:
    """``np.asarray`` likewise: a traced array stays what it is."""
    if isinstance(tree, Traced) and (dtype is None or np.dtype(dtype) == tree.dtype):
        return tree
    return array(tree, dtype)


def holds_traced(tree: Any) -> bool:
    """Whether a list or tuple has a traced value somewhere inside."""
    return isinstance(tree, list | tuple) and any(isinstance(leaf, Traced) for leaf in _flat(tree))


def _flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, list | tuple) else [tree]
