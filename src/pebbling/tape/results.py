"""Gradients as they are handed out: one a leaf, private, zeros where the result does not depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np

from ..tree import copy
from .convert import differentiable, like
from .handle import Box, Handle


def gradients(
    leaves: Sequence[tuple[Box, ref[Handle]]], found: Mapping[Box, Any], given: Iterable[Any]
) -> dict[Handle, Any]:
    """By leaf, for all leaves whose handles are alive; ``given`` are arrays of the user that rules may pass on."""
    taken = {id(value) for value in [*given, *[box.value for box, _ in leaves]]}
    results: dict[Handle, Any] = {}
    for box, reference in leaves:
        handle = reference()
        if handle is None:
            continue
        gradient = found.get(box)
        if gradient is None and differentiable(box.value):
            gradient = like(box.value, 0.0)
        if id(gradient) in taken or (isinstance(gradient, np.ndarray) and not gradient.flags.owndata):
            gradient = copy(gradient)
        taken.add(id(gradient))
        results[handle] = gradient
    return results
