"""What a loop asks of the framework that follows its values: one class a framework, with every member that is here.

Either ``engine`` takes the derivatives of steps and of whole loops, as for NumPy and autograd, or ``execute`` runs
whole loops in the framework's own way, as for PyTorch and JAX. The rest are questions about single values:

    framework.level(leaf)     is it followed, and by which of several derivatives?
    framework.plain(leaf)     the value below them all
    framework.mark(leaf)      has somebody written into it meanwhile?

Loops find a framework by the package that a value's type comes from (``loops/frameworks.py``), and never import one: a
value of its types can only come from a program that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .protocol import Engine, Leaf


class Framework(Protocol):
    """One framework."""

    @property
    def engine(self) -> Engine | None:
        """Differentiates steps, and a loop as one node; ``None`` where ``execute`` runs whole loops."""

    @property
    def execute(self) -> Callable[..., Any] | None:
        """Runs a program: ``execute(program, state, consts, options, written) -> Outcome``."""

    @property
    def compiled(self) -> Callable[[Any], Any] | None:
        """Runs a loop of a function's source from what its code says of it, where the framework compiles."""

    def level(self, leaf: Leaf) -> int:
        """0 for a plain value; else greater for the derivative that runs inside another."""

    def plain(self, leaf: Leaf) -> Any:
        """The value below all derivatives."""

    def share(self, leaf: Leaf) -> Leaf:
        """The same traced value as another object, so that writing into one leaves the other as it is."""

    def enter(self, leaf: Leaf, of_state: bool) -> Leaf:
        """A leaf as a loop takes it: one of its state, or a constant."""

    def idle(self) -> bool:
        """Whether nothing is differentiated at the moment, whatever the leaves say."""

    def mark(self, leaf: Leaf) -> Any:
        """Something that is the same before and after exactly if nobody has written into the leaf in between."""

    def bar(self, leaf: Leaf, reason: str) -> None:
        """From now on, refuse to write into the leaf, for that reason."""

    def root(self, leaf: Leaf) -> Leaf:
        """The leaf whose memory this one looks into, as far as writing is concerned."""

    def follow(self, leaf: Leaf, other: Leaf) -> None:
        """Let a leaf stand for another one with the same value, whose derivative it takes over."""

    def viewed(self, leaf: Leaf) -> bool:
        """Whether somebody holds another leaf that changes when this one is written into."""

    def array(self, leaf: Leaf) -> bool:
        """Whether a leaf, traced or not, is an array of the framework's own, into which code can write."""

    def clone(self, leaf: Leaf) -> Leaf:
        """Such an array in memory of its own, with the derivative of the one it is a copy of."""

    def memory(self, leaf: Leaf) -> tuple[int, int, int] | None:
        """Which memory such an array looks into, and its first and last byte there."""


class Unwritten:
    """The answers of a framework into whose values nobody can write."""

    def mark(self, leaf: Leaf) -> Any:
        return None

    def bar(self, leaf: Leaf, reason: str) -> None:
        return

    def root(self, leaf: Leaf) -> Leaf:
        return leaf

    def follow(self, leaf: Leaf, other: Leaf) -> None:
        return

    def viewed(self, leaf: Leaf) -> bool:
        return False

    def array(self, leaf: Leaf) -> bool:
        return False

    def clone(self, leaf: Leaf) -> Leaf:
        return leaf

    def memory(self, leaf: Leaf) -> tuple[int, int, int] | None:
        return None
