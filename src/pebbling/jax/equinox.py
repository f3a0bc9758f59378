"""``while_loop`` and ``scan`` with the signatures of ``equinox.internal``, whose ``kind="checkpointed"`` is pebbling's.

The other kinds are equinox's own. What differs: the number of evaluations is that of pebbling's plans, derivatives of
any order and mode go through, and errors speak of ``pebbling``. Buffers are arrays as any others: what a loop only
writes is in no snapshot, and what it also reads is right, at the price of being in them; the promise never to write to
a place twice is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.tree_util import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_unflatten

from . import loops, online
from .body import as_arrays
from .buffers import picked

try:
    import equinox.internal as eqxi
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pebbling.jax.equinox needs equinox: pip install equinox", name=error.name, path=error.path
    ) from error

__all__ = ["scan", "while_loop"]

Choose = Callable[[Any], Any]


class WriteBuffer:
    """An array as the body of a loop sees it: to be written to, ``.at[i].set(x, pred=…)``, and read by index."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, item: Any) -> Any:
        return self._array[item]

    @property
    def at(self) -> _Places:
        return _Places(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> Any:
        return self._array.dtype

    @property
    def size(self) -> int:
        return int(self._array.size)


register_pytree_node(WriteBuffer, lambda b: ((b._array,), None), lambda _, children: WriteBuffer(children[0]))


class _Places:
    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, item: Any) -> _Place:
        return _Place(self._array, item)


class _Place:
    """A place in a buffer."""

    def __init__(self, array: Any, item: Any) -> None:
        self._array, self._item = array, item

    def get(self, **options: Any) -> Any:
        return self._array.at[self._item].get(**options)

    def set(self, value: Any, *, pred: Any = True, **options: Any) -> WriteBuffer:
        if pred is not True and (jnp.shape(pred) != () or jnp.result_type(pred) != jnp.bool_):
            raise ValueError("predicate must be a boolean scalar.")
        array = self._array
        if jnp.result_type(value, array) != array.dtype:
            raise ValueError(
                f"a buffer of {array.dtype} was given a value of {jnp.result_type(value)}, which is wider: convert it"
            )
        value = jnp.asarray(value, array.dtype)
        if pred is not True:
            value = jnp.where(pred, value, self.get(**options))
        return WriteBuffer(array.at[self._item].set(value, **options))


def _is_buffer(value: Any) -> bool:
    return isinstance(value, WriteBuffer)


class _Carry:
    """A carry as a flat list of arrays, and as the functions of the user see it, with buffers in the places named."""

    def __init__(self, value: Any, buffers: Choose | None) -> None:
        leaves, tree = tree_flatten(value, is_leaf=_is_buffer)
        self.tree: Any = tree
        self.outer = [_is_buffer(leaf) for leaf in leaves]  # those of a loop around this one
        self.values = as_arrays([leaf._array if _is_buffer(leaf) else leaf for leaf in leaves])[0]
        self.buffers = self.outer
        if buffers is not None:
            self.buffers = [one or other for one, other in zip(self.outer, picked(buffers, self.tree))]

    def seen(self, values: Any) -> Any:
        """As the body and the condition see it."""
        return self._tree(values, self.buffers)

    def final(self, values: Any) -> Any:
        """As the caller of the loop gets it."""
        return self._tree(values, self.outer)

    def _tree(self, values: Any, wrapped: list[bool]) -> Any:
        return tree_unflatten(self.tree, [WriteBuffer(v) if w else v for v, w in zip(values, wrapped)])

    def flat(self, value: Any) -> list[Any]:
        """What the body returned, as a flat list."""
        leaves, tree = tree_flatten(value, is_leaf=_is_buffer)
        if tree != self.tree:
            raise ValueError(
                "`body_fun` must have the same input and output structure: it takes "
                f"{self.tree} and returns {tree} (seen by pebbling)"
            )
        return as_arrays([leaf._array if _is_buffer(leaf) else leaf for leaf in leaves])[0]


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
    buffers: Choose | None = None,
    kind: Any,
    checkpoints: int | None = None,
    base: int = 16,
) -> Any:
    """``equinox.internal.while_loop``; with ``kind="checkpointed"`` it is ``pebbling.jax.while_loop``.

    ``checkpoints`` is the number of slots; without it, enough that no step of ``max_steps`` is advanced more than
    twice.

    >>> def halve(x): return while_loop(lambda y: y > 1e-3, lambda y: y * 0.5, x, kind="checkpointed", checkpoints=4)
    >>> import jax
    >>> float(jax.grad(halve)(1.0))
    0.0009765625
    """
    if kind != "checkpointed":
        return eqxi.while_loop(
            cond_fun, body_fun, init_val, max_steps=max_steps, buffers=buffers, kind=kind,
            checkpoints=checkpoints, base=base,
        )  # fmt: skip
    return checkpointed(cond_fun, body_fun, init_val, max_steps, buffers, slots=_slots(checkpoints, max_steps))


def checkpointed(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None,
    buffers: Choose | None,
    **asked: Any,
) -> Any:
    """Such a loop with what ``pebbling.jax.while_loop`` may be asked for."""
    if max_steps is not None and type(max_steps) is not int:
        raise ValueError("`max_steps` must be a Python integer")
    carry = _Carry(init_val, buffers)
    if max_steps == 0:
        return carry.final(carry.values)

    def more(c: Any) -> Any:
        going = jnp.asarray(cond_fun(carry.seen(c[1])))
        return going if max_steps is None else going & (c[0] < max_steps)

    def step(c: Any) -> Any:
        return c[0] + 1, carry.flat(body_fun(carry.seen(c[1])))

    _, values = online.while_loop(more, step, (jnp.int32(0), carry.values), **asked)
    return carry.final(values)


def _slots(checkpoints: int | None, max_steps: int | None) -> int:
    if checkpoints is None:
        if max_steps is None:
            raise ValueError("give max_steps= or checkpoints=: without them there is no telling how many slots to keep")
        checkpoints = 1 if max_steps <= 1 else math.floor(-1.5 + math.sqrt(2 * max_steps + 0.25)) + 1
    if checkpoints < 1:
        raise ValueError("Must have at least one checkpoint")
    return checkpoints if max_steps is None else max(1, min(checkpoints, max_steps))


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    *,
    buffers: Choose | None = None,
    kind: Any,
    checkpoints: Any = None,
) -> tuple[Any, Any]:
    """``equinox.internal.scan``; with ``kind="checkpointed"`` it is ``pebbling.jax.scan``.

    ``checkpoints`` is the number of slots; ``"all"`` keeps every state.
    """
    if kind != "checkpointed":
        return eqxi.scan(
            f,
            init,
            xs,
            length,
            buffers=buffers,
            kind=kind,
            checkpoints=checkpoints,
        )
    carry = _Carry(init, buffers)
    xs = tree_map(jnp.asarray, xs)
    steps = {int(x.shape[0]) for x in tree_leaves(xs)} | (set() if length is None else {length})
    if len(steps) != 1:
        raise ValueError(f"scan got leading axes and length {sorted(steps)}: they must agree")
    (count,) = steps

    def step(values: Any, x: Any) -> tuple[Any, Any]:
        new, y = f(carry.seen(values), x)
        return carry.flat(new), y

    if checkpoints == "all" or count == 0:
        values, ys = lax.scan(step, carry.values, xs, count)
    else:
        assert checkpoints is None or isinstance(checkpoints, int)
        values, ys = loops.scan(step, carry.values, xs, count, slots=_slots(checkpoints, count))
    return carry.final(values), ys
