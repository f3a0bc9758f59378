"""jax's random keys as data, and the scalars that follow the types of others (weak types)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .arrays import describe
from .data import NotData

jax: Any = import_module("jax")
_PLAIN = {"bool": bool, "int32": int, "int64": int, "float32": float, "float64": float}
_PLAIN |= {"complex64": complex, "complex128": complex}


def form_of(value: Any) -> tuple[Any, ...] | None:
    """The form of a value, if it is one of these."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return None
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return form_named("jax key")
    return form_named("jax weak") if value.weak_type else None


def form_named(name: str) -> tuple[Any, ...] | None:
    """A name, what stands for the object, and what makes it again."""
    return (name, *_FORMS[name]) if name in _FORMS else None


def _key(value: Any) -> tuple[str, np.ndarray]:
    impl = jax.random.key_impl(value)
    if not isinstance(impl, str):
        raise NotData(f"a jax key of {impl}")
    return impl, np.array(jax.random.key_data(value))


def _made_key(impl: str, data: np.ndarray) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=impl)


def _weak(value: Any) -> tuple[Any, np.ndarray]:
    data = np.array(value)
    if data.dtype.name not in _PLAIN:
        raise NotData(f"a weakly typed jax array of {data.dtype}")
    return describe(data.dtype), data


def _made_weak(dtype: str, data: np.ndarray) -> Any:
    """An array that came of Python's numbers alone: one of them, spread and given its values."""
    zero = jax.numpy.asarray(_PLAIN[np.dtype(dtype).name](0))
    made = jax.numpy.broadcast_to(zero, data.shape)
    made = made.at[...].set(data) if data.ndim else jax.numpy.asarray(data.item())
    if not made.weak_type or made.dtype != np.dtype(dtype) or np.asarray(made).tobytes() != data.tobytes():
        raise ValueError(f"jax gives {made.dtype} where {dtype} was written: enable 64-bit values as it was then")
    return made


_FORMS = {"jax key": (_key, _made_key), "jax weak": (_weak, _made_weak)}
