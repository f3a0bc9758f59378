"""How an operation is run again: as it was, except for those that draw numbers or update statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from .random import device_of, draw_again


class Call(NamedTuple):
    """A function and its arguments, which may contain nodes of the captured graph."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def reads(self) -> list[fx.Node]:
        """Nodes among the arguments."""
        found: dict[fx.Node, None] = {}
        fx.node.map_arg((self.args, self.kwargs), lambda node: found.setdefault(node))
        return list(found)


def norm_again(*args: Any) -> tuple[Any, ...]:
    """A batch norm in training, without new statistics where they would be among the results."""
    return *torch.ops.aten._native_batch_norm_legit.no_stats(*args), None, None


def replay(node: Any, states: Mapping[str, fx.Node]) -> Call:
    """The call that gives a node's results once more; ``states`` are those of the generators, by name of node."""
    if node.target is torch.ops.aten._native_batch_norm_legit_functional.default:
        # The running statistics have been updated by now, and a replay is not to look at them.
        values, weight, bias, _, _, training, momentum, eps = node.args
        kept = (values, weight, bias, training, momentum, eps)
        return Call(norm_again, kept, {})
    if hasattr(node.target, "again"):
        fresh = tuple(None if i in node.target.stale else argument for i, argument in enumerate(node.args))
        return Call(node.target.again, fresh, {})
    if node.name in states:
        return Call(_drawing(node.target, device_of(node)), (states[node.name], *node.args), dict(node.kwargs))
    return Call(node.target, node.args, node.kwargs)


def _drawing(operation: Any, device: str) -> Any:
    """A random operation that takes a state of the generator before its own arguments."""

    # Bound here and not among the arguments, where FX can write torch's own operators only.
    def again(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return draw_again(state, device, operation, args, kwargs)

    return again
