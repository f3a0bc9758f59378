"""What JAX makes of the leaves of Python objects, and what they are called in messages."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...source.graph import is_fixed
from ..compat import Aval, aval_of

_KINDS = [(bool, np.bool_), (int, np.integer), (float, np.floating), (complex, np.complexfloating)]


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array that JAX can carry."""
    if isinstance(leaf, jax.Array):
        return True
    return isinstance(leaf, np.ndarray | np.generic) and bool(
        jnp.issubdtype(leaf.dtype, np.number) or jnp.issubdtype(leaf.dtype, np.bool_)
    )


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a Python number."""
    return type(leaf) in (bool, int, float, complex)


def type_of(leaf: Any) -> Aval:
    """The type that JAX gives a leaf."""
    return aval_of(leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf))


def same(one: Any, two: Any) -> bool:
    """Whether two leaves are one and the same, or equal values that can't change."""
    return one is two or (is_fixed(one) and type(one) is type(two) and bool(one == two))


def gives_way(old: Aval, new: Aval) -> bool:
    """Whether the type of a Python number yields to that of an array, as it does in an operation of both."""
    if not old.weak_type or (old.dtype == new.dtype and new.weak_type):
        return False
    kind = next(python for python, numpy in _KINDS if jnp.issubdtype(old.dtype, numpy))
    with jax.numpy_dtype_promotion("standard"):
        return bool(jnp.result_type(kind, new.dtype) == new.dtype)


def type_words(kind: Aval) -> str:
    """A type as users write it."""
    return str(kind.str_short(short_dtypes=False))


def words(value: Any) -> str:
    """A value in few words."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array {type_words(type_of(value))}" if is_array(value) else "an array of objects"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
