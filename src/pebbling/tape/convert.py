"""Arrays of one framework as arrays of another, and zeros and ones like them; shared memory where possible."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..errors import PebblingError
from ..store.extra import require
from ..tree import kind_of


def framework(value: Any) -> str | None:
    """``"numpy"``, ``"torch"`` or ``"jax"`` for an array or a floating-point number, else ``None``."""
    name = kind_of(value).name
    if name in ("numpy", "torch", "jax"):
        return name
    return "numpy" if isinstance(value, float | complex | np.inexact) else None


def differentiable(value: Any) -> bool:
    """Whether a value can have a derivative: floating point or complex."""
    name = framework(value)
    if name is None:
        return False
    if name == "torch":
        return bool(value.is_floating_point() or value.is_complex())
    return np.asarray(value).dtype.kind in "fc" if name == "numpy" else value.dtype.kind in "fcV"


def to(name: str, value: Any) -> Any:
    """A value as an array of that framework; what is no array stays as it is."""
    found = framework(value)
    if found is None or found == name:
        return value
    array = value.detach().cpu().numpy() if found == "torch" else np.asarray(value)
    if name == "numpy":
        return array
    if name == "torch":
        torch = require("torch", "torch", "op.from_torch")
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    made = require("jax.numpy", "jax", "op.from_jax").asarray(array)
    if made.dtype != array.dtype:
        raise PebblingError(
            f"jax makes {made.dtype} of an array of {array.dtype}: enable 64-bit values with "
            'jax.config.update("jax_enable_x64", True), or give it an array of the smaller type'
        )
    return made


def like(value: Any, filled: float) -> Any:
    """An array of the shape and type of ``value`` with one number everywhere; ``None`` if it is no array."""
    name = framework(value)
    if name is None:
        return None
    if name == "torch":
        return value.new_full(value.shape, filled)
    if name == "jax":
        return sys.modules["jax"].numpy.full_like(value, filled)
    return np.full_like(value, filled) if isinstance(value, np.ndarray) else type(value)(filled)


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape of an array or a number, or ``None``."""
    found = getattr(value, "shape", () if isinstance(value, float | int | complex) else None)
    return None if found is None else tuple(found)


def inner(first: Any, second: Any) -> float:
    """The real inner product of two arrays of any framework."""
    one, two = np.asarray(to("numpy", first)), np.asarray(to("numpy", second))
    return float(np.real(np.vdot(one, two)))
