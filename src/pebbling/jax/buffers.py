"""``buffers=``: arrays that a loop is to fill, and that must therefore take no room in its snapshots.

Such arrays are found without being told (``needs``). Whoever names them makes sure: if the way back needs one of them,
because a step reads it in a way that is not linear, that is an error and not a snapshot of the whole array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_unflatten

from .masks import drop, pick
from .needs import in_snapshots
from .simplify import Simplified


class _Mark:
    """Stands for an array while a function picks some of them."""


def picked(choose: Callable[[Any], Any], tree: Any) -> list[bool]:
    """Which arrays of a structure a function picks."""
    marks = [_Mark() for _ in range(tree.num_leaves)]
    named = {id(mark) for mark in tree_leaves(choose(tree_unflatten(tree, marks)))}
    if not named <= {id(mark) for mark in marks}:
        raise ValueError("buffers= must pick arrays of what the loop carries, and gave something else")
    return [id(mark) in named for mark in marks]


def check_buffers(choose: Callable[[Any], Any], init: Any, small: Simplified) -> None:
    """Refuse buffers that the way back needs."""
    _, tree = tree_flatten(init)
    paths = [keystr(path) for path, _ in tree_flatten_with_path(init)[0]]
    named = picked(choose, tree)
    needed = in_snapshots(small.body, [len(small.consts), len(small.carry), 0])
    moving, there = drop(small.fixed, paths), drop(small.fixed, named)
    read = [path for path, n in zip(pick(needed, moving), pick(needed, there)) if n]
    if read:
        raise ValueError(
            f"buffers= names carry{', carry'.join(read)}, and the gradient needs what a step reads there: read before "
            "the loop or after it, or leave buffers out, at the price of that array in each snapshot"
        )
