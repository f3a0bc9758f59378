"""Gradients and Hessian-vector products of functions written in plain NumPy, with or without checkpointed loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..budget import Budget
from ..engine.numpy import transform

Checkpoint: TypeAlias = bool | int | str | Budget | dict[str, Any] | None


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, checkpoint: Checkpoint = None) -> Callable[..., Any]:
    """A function that gives the gradient of ``f`` with respect to the arguments ``argnums``, trees of arrays.

    ``checkpoint`` makes every loop of ``f`` a checkpointed one: ``True``, a number of slots, bytes as text
    ("64MiB"), a ``pb.Budget``, or a dict of the options of ``pebbling.checkpoint``.

    >>> import numpy as np
    >>> grad(lambda p: np.sum(p["a"] * p["b"] ** 2))({"a": np.array([2.0]), "b": np.array([3.0])})
    {'a': array([9.]), 'b': array([12.])}
    """
    return transform.grad(_checkpointed(f, checkpoint), argnums)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, checkpoint: Checkpoint = None
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives ``f`` and its gradient; the arguments are those of ``grad``.

    >>> import numpy as np
    >>> value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    return transform.value_and_grad(_checkpointed(f, checkpoint), argnums)


def hvp(f: Callable[..., Any], argnums: int = 0, checkpoint: Checkpoint = None) -> Callable[..., Any]:
    """A function of the arguments of ``f`` and a direction that gives the Hessian of ``f`` times the direction.

    Forward over reverse: it takes about twice the memory of the gradient, checkpointed loops included.

    >>> import numpy as np
    >>> hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    return transform.hvp(_checkpointed(f, checkpoint), argnums)


def _checkpointed(f: Callable[..., Any], checkpoint: Checkpoint) -> Callable[..., Any]:
    if checkpoint is None or checkpoint is False:
        return f
    from .checkpoint import checkpoint as transform_loops

    transformed: Callable[..., Any] = transform_loops(**_options(checkpoint))(f)
    return transformed


def _options(checkpoint: Checkpoint) -> dict[str, Any]:
    if checkpoint is True:
        return {}
    if isinstance(checkpoint, int):
        return {"slots": checkpoint}
    if isinstance(checkpoint, str):
        return {"memory": checkpoint}
    if isinstance(checkpoint, Budget):
        return {"budget": checkpoint}
    if isinstance(checkpoint, dict):
        return checkpoint
    raise TypeError(
        f"checkpoint is True, a number of slots, bytes as text, a pb.Budget or a dict of options, not {checkpoint!r}"
    )
