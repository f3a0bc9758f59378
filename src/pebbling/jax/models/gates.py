"""What makes XLA run a part of a program after another, and not before, nor once for both.

A replay is the same computation as the first run. XLA merges equal computations, and runs what it can at any time,
so that a replay, written down plainly, costs memory and no time. On GPUs and TPUs ``optimization_barrier`` keeps the
two apart. XLA's compiler for CPUs drops barriers (its pass ``cse_barrier_expander``) before it merges for the last
time: that is why ``jax.checkpoint`` does not lower the memory of unrolled blocks there. A branch is what it respects.
So on CPUs each part of the way back is the branch of a ``cond`` whose condition always holds, since k (k + 1) is
even for every integer k, with k the bits of a number that the part before it made: the compiler can't know that, and
can't know k before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import compat

Part = Callable[..., list[Any]]
_INTEGERS = {1: jnp.int8, 2: jnp.int16, 4: jnp.int32, 8: jnp.int32}


def after(part: Part, values: Sequence[Any], before: Any, platform: str) -> list[Any]:
    """``part(*values)``, run after the value ``before`` was made."""
    if platform != "cpu":
        barrier: Any = lax.optimization_barrier
        held, _ = barrier((list(values), before))
        return part(*held)
    types = compat.trace(part, [compat.aval_of(v) for v in values]).out_avals

    def never(*_: Any) -> list[Any]:
        return [compat.varying_as(compat.zeros(aval), aval) for aval in types]

    number = bits(before)
    return list(lax.cond((number * (number + 1)) & 1 == 0, part, never, *values))


@jax.custom_batching.custom_vmap
def bits(value: Any) -> Any:
    """An integer made of the bits of one of the numbers in an array; of one example in a batch, for all of it."""
    first = lax.reshape(lax.slice(value, (0,) * value.ndim, (1,) * value.ndim), ())
    if jnp.issubdtype(first.dtype, jnp.complexfloating):
        first = lax.real(first)
    if jnp.issubdtype(first.dtype, jnp.floating):
        first = lax.bitcast_convert_type(first, _INTEGERS[first.dtype.itemsize])
    return lax.convert_element_type(first.ravel()[0], jnp.int32)


@bits.def_vmap
def _of_batch(_: int, batched: Sequence[bool], value: Any) -> tuple[Any, bool]:
    return bits(value[0] if batched[0] else value), False


def has_bits(aval: Any) -> bool:
    """Whether ``bits`` can be asked of values of a type."""
    kinds = (np.inexact, np.integer, np.bool_)
    return (
        bool(aval.size) and any(jnp.issubdtype(aval.dtype, kind) for kind in kinds) and aval.dtype.itemsize in _INTEGERS
    )
