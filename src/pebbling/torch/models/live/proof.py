"""A result may be dropped only if running its operation again gave the same bits, right after it ran.

Arguments are views rebuilt on the same storages, as a replay will have them; what an operation writes, and small
arguments that it might write without saying so (the statistics of a norm), are copies.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .bits import same
from .operators import OperatorFacts, tensors
from .recipe import Below, Recipe
from .values import Outside, Value, Window, address

_SMALL = 2**16
"""Bytes of an argument up to which a proof runs on a copy."""


def prove(
    recipe: Recipe, facts: OperatorFacts, result: Any, storages: dict[Value, Any], before: dict[Value, Any]
) -> str:
    """Why an operation can't be run again; nothing if it can.

    ``storages`` are those of its arguments, ``before`` copies of those that it wrote, as they were.
    """
    originals = _shield(recipe, storages)
    now: dict[Value, Any] = {**storages, **before}
    found: dict[Value, Any] = {}
    # The copies are for this run alone.
    recipe.steals = tuple(old.number for old in before)
    try:
        with Below():
            again = recipe.run(now.__getitem__, found, lambda value: before.get(value))
    except Exception as error:  # Whatever its kernels make of being run a second time.
        return f"can't be run again ({type(error).__name__})"
    finally:
        recipe.steals = ()
        scratch = _unshield(recipe, originals)
    recipe.scratch = scratch
    for ours, theirs in zip(tensors(again), tensors(result), strict=True):
        if facts.unfilled or not isinstance(theirs, Tensor) or address(theirs) in recipe.places:
            continue
        if ours.untyped_storage().nbytes() != theirs.untyped_storage().nbytes():
            return "gives a storage of another size"
        if ours.storage_offset() != theirs.storage_offset() or not same(ours, theirs):
            return "gives other bits"
    for _, old, reference in recipe.writes:
        value = reference()
        if value is not None and not _alike(found[value], storages[old], recipe, old):
            return "gives other bits"
    return ""


def _shield(recipe: Recipe, storages: dict[Value, Any]) -> list[tuple[int, Any, Tensor]]:
    """Put copies in place of small arguments that no schema says to be written."""
    written = {id(old) for _, old, _ in recipe.writes}
    put: list[tuple[int, Any, Tensor]] = []
    for place, given in enumerate(recipe.args):
        if isinstance(given, Outside):
            tensor = given.alias
        elif isinstance(given, Window) and id(given.value) not in written:
            tensor = given.over(storages[given.value])
        else:
            continue
        if tensor.numel() * tensor.element_size() <= _SMALL:
            copy = tensor.clone()
            if copy.stride() == tensor.stride():
                put.append((place, given, tensor))
                recipe.args[place] = copy
    return put


def _unshield(recipe: Recipe, put: list[tuple[int, Any, Tensor]]) -> tuple[int, ...]:
    """Put the arguments back; positions of those whose copies were written."""
    scratch = []
    for place, given, tensor in put:
        copy, recipe.args[place] = recipe.args[place], given
        if not same(copy, tensor):
            scratch.append(place)
    return tuple(scratch)


def _alike(mine: Any, theirs: Any, recipe: Recipe, old: Value) -> bool:
    windows = [each for each in recipe.args if isinstance(each, Window) and each.value is old]
    return all(same(each.over(mine), each.over(theirs)) for each in windows)
