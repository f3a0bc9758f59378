"""Plain NumPy programs, whose values our own engine follows."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from .. import numpy as engine
from ..protocol import Leaf
from .alias import Alias
from .blank import Blank
from .tape import ONLY_HERE
from .traced import Traced, plain


class NumpyFramework:
    """What loops ask of NumPy's values."""

    engine = engine
    execute = None
    compiled = None

    def level(self, leaf: Leaf) -> int:
        return leaf.level if isinstance(leaf, Traced) and not leaf.blank else 0

    def plain(self, leaf: Leaf) -> Any:
        return plain(leaf)

    def share(self, leaf: Leaf) -> Leaf:
        if isinstance(leaf, engine.Dual):
            return engine.Dual(leaf.value, leaf.tangent, leaf.level)
        return engine.Var(leaf.value, leaf.tape, leaf.index)

    def enter(self, leaf: Leaf, of_state: bool) -> Leaf:
        if not isinstance(leaf, Blank):
            return leaf
        return leaf.settle() if of_state else leaf.value

    def idle(self) -> bool:
        return False

    def mark(self, leaf: Leaf) -> Any:
        return leaf.value  # a write makes a new value as long as somebody else holds the old one

    def bar(self, leaf: Leaf, reason: str) -> None:
        if isinstance(leaf, Traced):
            leaf.alias = leaf.alias or Alias()
            leaf.alias.refusal = reason

    def root(self, leaf: Leaf) -> Leaf:
        while isinstance(leaf, Traced) and leaf.alias is not None and leaf.alias.base is not None:
            leaf = leaf.alias.base
        return leaf

    def follow(self, leaf: Leaf, other: Leaf) -> None:
        if type(leaf) is type(other) and leaf.level == other.level:
            leaf.become(other)

    def viewed(self, leaf: Leaf) -> bool:
        alias = leaf.alias if isinstance(leaf, Traced) else None
        if alias is not None and any(view() is not None for view in alias.views or ()):
            return True
        while alias is not None and alias.base is not None:
            if getrefcount(alias.base) > ONLY_HERE:
                return True
            alias = alias.base.alias
        return False

    def array(self, leaf: Leaf) -> bool:
        return False  # NumPy's own arrays are locked while they are needed

    def clone(self, leaf: Leaf) -> Leaf:
        return leaf

    def memory(self, leaf: Leaf) -> tuple[int, int, int] | None:
        return None
