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


def replay(node: Any, states: Mapping[str, fx.Node]) -> Call:
    """The call that gives a node's results once more; ``states`` are those of the generators, by name of node."""
    if node.target is torch.ops.aten._native_batch_norm_legit_functional.default:
        # The running statistics have been updated by now, and a replay is not to look at them.
        values, weight, bias, _, _, training, momentum, eps = node.args
        kept = (values, weight, bias, training, momentum, eps)
        return Call(torch.ops.aten._native_batch_norm_legit.no_stats, kept, {})
    if hasattr(node.target, "again"):
        fresh = tuple(None if i in node.target.stale else argument for i, argument in enumerate(node.args))
        return Call(node.target.again, fresh, {})
    if node.name in states:
        args = (states[node.name], device_of(node), node.target, node.args, node.kwargs)
        return Call(draw_again, args, {})
    return Call(node.target, node.args, node.kwargs)
