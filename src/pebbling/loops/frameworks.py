"""Which framework follows the values of a loop: a table by the package that a value's type comes from.

A framework is an engine (``pebbling.engine.protocol``) and three small functions. One that is not
loaded is never imported: a value of its types can only come from a program that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..engine.protocol import Engine, Leaf
from ..errors import PebblingError


class Framework(NamedTuple):
    """What a loop asks of a framework."""

    engine: Engine
    level: Callable[[Leaf], int]
    """0 for a plain value; else greater for the derivative that runs inside another."""
    plain: Callable[[Leaf], Any]
    """The value below all derivatives."""
    share: Callable[[Leaf], Leaf]
    """The same traced value as another object, so that writing into one leaves the other as it is."""


def framework_of(leaves: Iterable[Leaf]) -> Framework | None:
    """The framework that follows one of these leaves; ``None`` if all of them are plain."""
    for leaf in leaves:
        if type(leaf) not in _PLAIN:
            found = _look(leaf)
            if found is not None:
                return found
    return None


def register(package: str, active: Callable[[Leaf], bool], load: Callable[[], Framework]) -> None:
    """Let loops differentiate values whose types come from ``package``: ``active`` tells which are followed."""
    _TABLE[package] = active, load
    _PLAIN.clear()


def numpy_framework() -> Framework:
    """Plain NumPy programs, by pebbling's own engine."""
    from ..engine import numpy as engine
    from ..engine.numpy.traced import Traced, plain

    def level(leaf: Leaf) -> int:
        return leaf.level if isinstance(leaf, Traced) else 0

    def share(leaf: Leaf) -> Leaf:
        if isinstance(leaf, engine.Dual):
            return engine.Dual(leaf.value, leaf.tangent, leaf.level)
        return engine.Var(leaf.value, leaf.tape, leaf.index)

    return Framework(engine, level, plain, share)


def _missing(package: str, instead: str) -> Callable[[], Framework]:
    def load() -> Framework:
        raise PebblingError(f"a value that {package} differentiates was given to a loop of NumPy arrays: {instead}")

    return load


def _look(leaf: Leaf) -> Framework | None:
    cls = type(leaf)
    package = cls.__module__.partition(".")[0]
    entry = _TABLE.get(package)
    if entry is None:
        _PLAIN.add(cls)
        return None
    active, load = entry
    if not active(leaf):
        return None
    found = _loaded.get(package)
    if found is None:
        found = _loaded[package] = load()
    return found


def _traced_here(leaf: Leaf) -> bool:
    from ..engine.numpy import active

    return active(leaf)


def _is_box(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["autograd.tracer"].Box)


def autograd_framework() -> Framework:
    """Programs written with HIPS ``autograd.numpy``."""
    from ..engine import autograd as engine

    def level(leaf: Leaf) -> int:
        return leaf._trace + 1 if _is_box(leaf) else 0

    def plain(leaf: Leaf) -> Any:
        while _is_box(leaf):
            leaf = leaf._value
        return leaf

    return Framework(engine, level, plain, lambda box: box)


_PLAIN: set[type] = set()
_loaded: dict[str, Framework] = {}
_TABLE: dict[str, tuple[Callable[[Leaf], bool], Callable[[], Framework]]] = {
    "pebbling": (_traced_here, numpy_framework),
    "autograd": (_is_box, autograd_framework),
    "torch": (
        lambda leaf: getattr(leaf, "requires_grad", False),
        _missing("torch", "use pebbling.torch.loop"),
    ),
    "jax": (
        lambda leaf: isinstance(leaf, sys.modules["jax"].core.Tracer),
        _missing("jax", "use pebbling.jax.fori_loop, scan or while_loop"),
    ),
    "jaxlib": (lambda leaf: False, _missing("jax", "use pebbling.jax")),
}
