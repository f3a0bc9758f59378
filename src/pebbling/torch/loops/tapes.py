"""What a tape of several steps is, and what makes tapes and takes them back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.autograd.graph import GradientEdge

from ...errors import PebblingError, SourceError
from ...loops.program import Leaves

Key = tuple[int, torch.dtype]
"""A copy of a constant that autocast made: the constant's place, and the dtype of the copy."""


@dataclass
class Sums:
    """Cotangents of the constants, summed over the steps that have been reversed."""

    constants: list[torch.Tensor | None]
    copies: dict[Key, torch.Tensor] = field(default_factory=dict)
    edges: dict[Key, GradientEdge] = field(default_factory=dict)
    """Where the sum of a copy goes on to its constant."""


@dataclass
class TapedBlock:
    """Steps ``start … stop-1`` on one tape."""

    start: int
    stop: int
    roots: list[Any]
    """The leaves of the state that are differentiated, or where their cotangents arrive."""
    ends: list[GradientEdge | None]
    """Where the cotangent of each output goes in."""
    values: Leaves
    outs: int
    emitted: list[int]
    flag: Any
    copies: dict[Key, GradientEdge]
    into: list[GradientEdge | None] | None = None
    """Where the cotangents of the roots arrive, if it can't be read off them later: somebody may write into them."""
    places: list[int] | None = None
    """Which of the constants it has reached; ``None`` if nobody has looked."""
    moved: list[Any] = field(default_factory=list)
    """What of the tape is in host memory."""


class Tapes(Protocol):
    """What makes tapes and takes them back: with autograd's engine, or level by level inside transforms."""

    written: frozenset[int]
    given: Leaves
    constants: list[torch.Tensor]
    lets_go: bool
    looks: bool
    """Whether it sees to it that every tensor that steps reach is known."""

    def untaped(self) -> AbstractContextManager[Any]:
        """Where steps run that nobody will reverse here."""

    def cut(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves without the graph they came from."""

    def tape(self, state: Leaves, start: int, stop: int, live: Sequence[bool], leaf: Sequence[bool] = ()) -> Any:
        """Run steps with a tape; ``state`` comes back empty. ``leaf`` marks leaves of the state that stay leaves."""

    def pull(
        self,
        block: Any,
        cotangents: Sequence[Any],
        sums: Sums,
        wanted: Sequence[bool],
        before: Sequence[tuple[int, torch.Tensor]] = (),
    ) -> list[Any]:
        """Cotangents of the leaves of the state before a block, from those of its outputs; ``sums`` go on.

        ``before`` are cotangents that leaves of that state have been given already, by place.
        """

    def finish(self, sums: Sums) -> None:
        """What is left to do once every block has been taken back."""


class Unknown(PebblingError):
    """A block reached tensors that are not among the constants."""

    def __init__(self, block: TapedBlock, leaves: list[torch.Tensor], hidden: int, where: str) -> None:
        super().__init__(where)
        self.block, self.leaves, self.hidden, self.where = block, leaves, hidden, where

    def refuse(self) -> SourceError:
        """The error for a user."""
        shapes = ", ".join([f"a leaf of shape {tuple(leaf.shape)}" for leaf in self.leaves[:3]])
        if self.hidden:
            shapes = ", ".join(filter(None, [shapes, f"{self.hidden} computed from tensors that require gradients"]))
        return SourceError(
            f"{self.where} uses tensors that need gradients and that can't be found from outside ({shapes}; first seen "
            f"in steps {self.block.start} to {self.block.stop - 1}): their gradients would be lost. Pass them as "
            "arguments of the loop"
        )
