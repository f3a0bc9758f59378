"""A user's step function as a jaxpr over flat lists, with what it closes over made explicit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_structure, tree_unflatten

from . import compat
from .compat import Jaxpr, aval_of, trace
from .primitives import check_effects


@dataclass(frozen=True)
class Body:
    """The step (index, consts, carry, x) → (carry, y) as a jaxpr, with the values to start from."""

    jaxpr: Jaxpr
    consts: list[Any]
    carry: list[Any]
    tree: Any
    output_tree: Any


def as_arrays(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree as JAX values, and its structure."""
    leaves, structure = tree_flatten(tree)
    return [leaf if hasattr(leaf, "aval") else jnp.asarray(leaf) for leaf in leaves], structure


def trace_body(
    step: Callable[[Any, Any, Any], tuple[Any, Any]], init: Any, xs: Sequence[Any], xs_tree: Any, name: str
) -> Body:
    """Trace ``step(i, carry, x) -> (carry, y)``; the carry must keep its structure, shapes and types."""
    carry, tree = as_arrays(init)
    rows = [compat.unstacked(aval_of(x)) for x in xs]
    outputs: list[Any] = []

    def flat(i: Any, *args: Any) -> list[Any]:
        new, y = step(i, tree_unflatten(tree, args[: len(carry)]), tree_unflatten(xs_tree, args[len(carry) :]))
        leaves, structure = as_arrays(new)
        ys, ys_tree = as_arrays(y)
        if structure != tree:
            raise TypeError(
                f"the body of {name} takes a carry of structure {tree} and returns one of structure {structure}: "
                "they must be the same"
            )
        outputs[:] = [ys_tree]
        return [*leaves, *ys]

    index = aval_of(jnp.int32(0))
    for _ in range(len(carry) + 2):
        jaxpr = trace(flat, [index, *map(aval_of, carry), *rows])
        promoted = [_promoted(x, a) for x, a in zip(carry, jaxpr.out_avals)]
        if all(a is b for a, b in zip(promoted, carry)):
            break
        carry = promoted
    _check_types(name, init, carry, jaxpr.out_avals)
    check_effects(jaxpr.effects, f"the body of {name}")
    explicit, consts = compat.explicit_consts(jaxpr, after=1)
    return Body(explicit, consts, carry, tree, outputs[0])


def _promoted(value: Any, aval: Any) -> Any:
    """A weakly typed initial value in the type that the body makes of it."""
    mine = aval_of(value)
    if mine.dtype != aval.dtype and getattr(mine, "weak_type", False) and mine.shape == aval.shape:
        return jnp.asarray(value, aval.dtype)
    return compat.varying_as(value, aval)


def _check_types(name: str, init: Any, carry: Sequence[Any], found: Sequence[Any]) -> None:
    paths = [keystr(path) for path, _ in tree_flatten_with_path(init)[0]]
    for path, value, aval in zip(paths, carry, found):
        mine = aval_of(value)
        if (mine.shape, mine.dtype) != (aval.shape, aval.dtype):
            raise TypeError(
                f"the body of {name} takes carry{path} as {mine.str_short()} and returns it as {aval.str_short()}: "
                "the carry must keep shape and type; convert it in the body, or start from the other type"
            )


def empty_tree() -> Any:
    """The structure of no inputs at all."""
    return tree_structure(None)
