"""What a framework provides so that a driver can differentiate one step, and a whole loop as one node.

A driver works on flat lists of leaves and treats them as opaque: a leaf may itself be traced by an
outer derivative, and everything here then nests. ``None`` stands for a zero cotangent or tangent and
costs nothing. A module with these functions is an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Leaf: TypeAlias = Any
Step: TypeAlias = Callable[[list[Leaf]], Sequence[Leaf]]


class Pullback(Protocol):
    """Takes cotangents of one step's outputs back to its inputs, once; the tape is freed on the way."""

    def __call__(self, cotangents: list[Leaf], into: list[Leaf]) -> None:
        """Add the cotangent of input ``i`` to ``into[i]`` (``None``: nothing yet).

        Both lists are used up on the way: ``cotangents`` comes back empty, and an array of ``into`` that
        nobody else refers to is added to in place, so that rows of a large input cost only themselves.
        """


class Custom(Protocol):
    """A computation with its own derivatives."""

    def run(self, inputs: list[Leaf]) -> tuple[list[Leaf], Any]:
        """The outputs, and whatever ``vjp`` needs."""

    def vjp(self, residue: Any, cotangents: list[Leaf], into: list[Leaf]) -> None:
        """Add the cotangent of input ``i`` to ``into[i]`` (``None``: nothing yet), from one an output.

        ``into`` comes with what later computations have given the same inputs, so that sums are added up in the
        order in which a tape without this node would: both lists are used as by a ``Pullback``.
        """

    def jvp(self, inputs: list[Leaf], tangents: list[Leaf]) -> tuple[Sequence[Leaf], Sequence[Leaf]]:
        """The outputs and one tangent an output, from one an input."""


class Engine(Protocol):
    """The functions of an engine."""

    def active(self, leaf: Leaf) -> bool:
        """Whether a derivative is being taken through this leaf."""

    def differentiable(self, leaf: Leaf) -> bool:
        """Whether a derivative could be taken through it: an array or number that is not an integer."""

    def step_vjp(
        self, step: Step, inputs: Sequence[Leaf], wrt: Sequence[bool] | None = None
    ) -> tuple[list[Leaf], Pullback]:
        """Run one step with a tape; its outputs, and the way back.

        ``wrt`` marks the inputs to differentiate, all by default; those that are not differentiable go in as they
        are. The inputs must stay what they are until the pullback has run.
        """

    def step_jvp(self, step: Step, inputs: Sequence[Leaf], tangents: Sequence[Leaf]) -> tuple[list[Leaf], list[Leaf]]:
        """Run one step forward with tangents; its outputs and theirs."""

    def custom(self, call: Custom, inputs: Sequence[Leaf]) -> list[Leaf]:
        """Run ``call`` so that a derivative taken through it uses its own rules: one node, whatever is inside."""
