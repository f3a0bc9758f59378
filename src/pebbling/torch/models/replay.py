"""How an operation is run again: as it was, except for those that draw numbers or update statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from .random import device_of, draw_again


class GraphCall(NamedTuple):
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


def replay(node: Any, states: Mapping[str, fx.Node]) -> GraphCall:
    """The call that gives a node's results once more; ``states`` are those of the generators, by name of node."""
    if hasattr(node.target, "again"):
        # A batch norm: its statistics have been updated by now, and a replay is not to look at them.
        fresh = tuple(None if i in node.target.stale else argument for i, argument in enumerate(node.args))
        return GraphCall(node.target.again, fresh, {})
    if node.name in states:
        return GraphCall(_drawing(node.target, device_of(node)), (states[node.name], *node.args), dict(node.kwargs))
    return GraphCall(node.target, node.args, node.kwargs)


def _drawing(operation: Any, device: str) -> Any:
    """A random operation that takes a state of the generator before its own arguments."""

    # Bound here and not among the arguments, where FX can write torch's own operators only.
    def again(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return draw_again(state, device, operation, args, kwargs)

    return again
