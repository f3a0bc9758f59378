"""``nested_checkpoint_scan``: the scan that jaxley and neuralGCM checkpoint by nesting, with the same signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .loops import scan


def nested_checkpoint_scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    *,
    nested_lengths: Sequence[int] | None = None,
    scan_fn: Callable[..., Any] = jax.lax.scan,
    checkpoint_fn: Callable[..., Any] = jax.checkpoint,
    slots: int | None = None,
    memory: float | str | None = None,
) -> tuple[Any, Any]:
    """A ``scan`` in the memory that scans nested in one another would take, or in what ``slots`` or ``memory`` say.

    Scans nested in one another, each but the innermost under ``jax.checkpoint``, keep as many states as the lengths of
    the outer ones add up to, and what the derivatives of one innermost scan need. So many slots between leaves of that
    length run fewer steps: with 12 × 12 × 12, 2.8 evaluations of each in place of 3. A single length is a plain
    ``scan``, as it is there; ``slots`` and ``memory`` are those of ``pebbling.jax.scan``.

    >>> import jax.numpy as jnp
    >>> step = lambda c, t: (jnp.sin(c) + t, c)
    >>> f = lambda x: nested_checkpoint_scan(step, x, jnp.ones(60), nested_lengths=(6, 10))[0]
    >>> bool(jnp.allclose(jax.grad(f)(1.0), jax.grad(lambda x: jax.lax.scan(step, x, jnp.ones(60))[0])(1.0)))
    True
    """
    for name, given, usual in (("scan_fn", scan_fn, jax.lax.scan), ("checkpoint_fn", checkpoint_fn, jax.checkpoint)):
        if given is not usual:
            raise ValueError(f"{name} says how levels are nested, and nothing is nested here: leave it out")
    if nested_lengths is None:
        return scan(f, init, xs, length, slots=slots, memory=memory)
    steps = math.prod(nested_lengths)
    if length is not None and length != steps:
        raise ValueError(f"nested_lengths {tuple(nested_lengths)} make {steps} steps, and length is {length}")
    if slots is not None or memory is not None:
        return scan(f, init, xs, steps, slots=slots, memory=memory)
    if len(nested_lengths) < 2:
        return jax.lax.scan(f, init, xs, steps)
    *outer, leaf = nested_lengths
    return scan(f, init, xs, steps, slots=max(1, sum(outer) - len(outer) + 1), leaf=leaf)
