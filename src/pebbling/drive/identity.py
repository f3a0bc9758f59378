"""What makes a run this run and no other: named digests of its data, its plan, its code and what the code uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tree import fingerprint, flatten, paths
from .code import EMPTY, uses


def identity(
    budget: Any, index: Any, state: Any, seed: Any, functions: dict[str, Callable[..., Any]]
) -> dict[str, str]:
    """Digests by name; two runs with equal ones compute the same."""
    parts = {
        f"{name}=": repr(getattr(budget, name))
        for name in ("slots", "memory", "schedule")
        if getattr(budget, name) is not None
    }
    parts["shapes and dtypes of the state"] = _layout(state)
    parts["values of the initial state"] = fingerprint(state)
    if callable(index):
        functions = {**functions, "steps": index}
    else:
        parts["steps="] = repr(index)
    if callable(seed):
        functions = {**functions, "seed": seed}
    else:
        parts["shapes and dtypes of the seed"] = _layout(seed)
        parts["values of the seed"] = fingerprint(seed)
    for name, function in functions.items():
        parts |= uses(function, name)
    return parts


def differences(known: dict[str, str], found: dict[str, str]) -> list[str]:
    """The names under which two identities differ; what was empty at first may have been filled by the run."""
    differing = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    return [name for name in differing if known.get(name) != EMPTY]


def _layout(state: Any) -> str:
    leaves, structure = flatten(state)
    return "; ".join(
        f"{path}: {getattr(leaf, 'dtype', type(leaf).__name__)} {tuple(getattr(leaf, 'shape', ()))}"
        for path, leaf in zip(paths(structure), leaves)
    )
