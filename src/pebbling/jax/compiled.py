"""``jit``, ``grad`` and ``value_and_grad`` with a budget for the whole program.

The program is planned when it is first called with arguments of new types, placements or static values: see
``program``. What its loops get is part of the key under which JAX keeps compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_flatten

from . import compat, sites, tracers
from .accelerator import with_gpu_options
from .program import fit
from .rewrite import checkpoint_loops


def jit(f: Callable[..., Any], *, memory: float | str | None = None, **options: Any) -> Callable[..., Any]:
    """``jax.jit``; with ``memory=``, XLA's temporary memory for the program stays within so many bytes.

    The memory is divided among the loops of this package that have no budget of their own, wherever in the program
    they are: in functions that ``checkpoint_loops`` wraps, several, nested, batched, differentiated once or twice.
    If one slot for each of them is too much, ``BudgetError`` names the smallest budget. On GPUs ``GPU_OPTIONS`` are
    set, with or without a budget. The other options are those of ``jax.jit``.

    >>> import jax, jax.numpy as jnp
    >>> def f(x): return jnp.sum(jax.lax.fori_loop(0, 500, lambda i, y: jnp.sin(y), x))
    >>> g = jit(jax.value_and_grad(checkpoint_loops(f)), memory="200kB")
    >>> x = jnp.ones(1000)
    >>> bool(jnp.array_equal(g(x)[1], jax.jit(jax.grad(f))(x)))
    True
    >>> g.lower(x).compile().memory_analysis().temp_size_in_bytes <= 200_000
    True
    """
    compiled = jax.jit(f, **with_gpu_options(options))
    return compiled if memory is None else Budgeted(f, compiled, memory)


def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    memory: float | str | None = None,
    slots: int | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """The gradient of a function with plain loops, compiled; ``memory=`` bounds what XLA takes for all of it.

    >>> import jax, jax.numpy as jnp
    >>> def f(x): return jnp.sum(jax.lax.fori_loop(0, 500, lambda i, y: jnp.sin(y), x))
    >>> bool(jnp.all(grad(f, memory="100kB")(jnp.ones(1000)) > 0))
    True
    """
    replaced = checkpoint_loops(f, slots=slots)
    return jit(jax.grad(replaced, argnums, has_aux), memory=memory, **options)


def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    memory: float | str | None = None,
    slots: int | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """The value and the gradient of a function with plain loops, as ``grad``."""
    replaced = checkpoint_loops(f, slots=slots)
    return jit(jax.value_and_grad(replaced, argnums, has_aux), memory=memory, **options)


class Budgeted:
    """A compiled function with a budget."""

    def __init__(self, f: Callable[..., Any], compiled: Any, memory: float | str) -> None:
        update_wrapper(self, f)
        self._function, self._compiled, self._memory = f, compiled, memory
        self._divisions: dict[Any, sites.Shares] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        if any(map(tracers.is_traced, leaves)):
            # Part of another program: what is around it is planned with it, as far as it is seen.
            return checkpoint_loops(self._function, memory=self._memory)(*args, **kwargs)
        if compat.without_jit():
            return self._compiled(*args, **kwargs)
        with sites.current(self._division(leaves, tree, args, kwargs)):
            return self._compiled(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As that of a function of ``jax.jit``."""
        leaves, tree = tree_flatten((args, kwargs))
        with sites.current(self._division(leaves, tree, args, kwargs)):
            return self._compiled.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As that of a function of ``jax.jit``."""
        return self.trace(*args, **kwargs).lower()

    def _division(self, leaves: list[Any], tree: Any, args: Any, kwargs: Any) -> sites.Shares:
        key = (tree, tuple(map(_kind, leaves)))
        if key not in self._divisions:

            def make(division: sites.Shares) -> Any:
                with sites.current(division):
                    return self._compiled.trace(*args, **kwargs)

            self._divisions[key] = fit(make, self._memory, "the program")
        return self._divisions[key]


def _kind(leaf: Any) -> Any:
    """What a program depends on of an argument: types and places of arrays, types of numbers, the value of the rest."""
    if isinstance(leaf, jax.Array):
        return compat.aval_of(leaf), leaf.sharding
    if isinstance(leaf, np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)
    return type(leaf), leaf
