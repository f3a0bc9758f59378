"""Leaves of several steps that keep the residuals of each, as ``jax.checkpoint`` does with a policy.

A leaf of K steps is one step to the plan: it is advanced as a whole, and turned by a plain ``scan``
over its K steps, each evaluated once with its residuals kept. Against leaves of one step that saves
up to one evaluation in three, and the control of the rows, for the residuals of K steps. It pays
where residuals are about as small as a state, where a ``policy`` makes them so, and on accelerators,
whose loops of a known length are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.tree_util import tree_map

from ..chain.validate import whole


def in_leaves(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    steps: int,
    reverse: bool,
    leaf: int,
    policy: Any,
    unroll: int,
    run: Callable[..., tuple[Any, Any]],
) -> tuple[Any, Any]:
    """A scan as a checkpointed scan over leaves, which ``run`` does, and a shorter one for the rest."""
    leaf = min(whole(leaf, "leaf", 1), steps)
    body = f if policy is None else jax.checkpoint(f, policy=policy, prevent_cse=False)
    whole_leaves, rest = divmod(steps, leaf)

    def turn(carry: Any, rows: Any) -> tuple[Any, Any]:
        return lax.scan(body, carry, rows, leaf, reverse=reverse, unroll=unroll)

    head = slice(0, rest) if not reverse else slice(steps - rest, steps)
    tail = slice(rest, steps) if not reverse else slice(0, steps - rest)
    carry, first = lax.scan(body, init, tree_map(lambda x: x[head], xs), rest, reverse=reverse)
    folded = tree_map(lambda x: x[tail].reshape(whole_leaves, leaf, *x.shape[1:]), xs)
    carry, ys = run(turn, carry, folded, whole_leaves, reverse)
    flat = tree_map(lambda y: y.reshape(whole_leaves * leaf, *y.shape[2:]), ys)
    pair = (flat, first) if reverse else (first, flat)
    return carry, tree_map(lambda a, b: lax.concatenate([a, b], 0), *pair)
