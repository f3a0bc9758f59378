"""Which framework follows the values of a loop: a table by the package that a value's type comes from.

A framework is an engine (``pebbling.engine.protocol``) and three small functions. One that is not
loaded is never imported: a value of its types can only come from a program that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from sys import getrefcount
from typing import Any, NamedTuple

from ..engine.protocol import Engine, Leaf
from ..errors import PebblingError


def _version(leaf: Leaf) -> Any:
    return getattr(leaf, "_version", None)


def _itself(leaf: Leaf) -> Leaf:
    return leaf


def _no(leaf: Leaf) -> bool:
    return False


def _nothing(leaf: Leaf, other: Any) -> None:
    return


def _no_memory(leaf: Leaf) -> tuple[int, int, int] | None:
    return None


def _never() -> bool:
    return False


class Framework(NamedTuple):
    """What a loop asks of a framework."""

    engine: Engine
    level: Callable[[Leaf], int]
    """0 for a plain value; else greater for the derivative that runs inside another."""
    plain: Callable[[Leaf], Any]
    """The value below all derivatives."""
    share: Callable[[Leaf], Leaf]
    """The same traced value as another object, so that writing into one leaves the other as it is."""
    execute: Callable[..., Any] | None = None
    """Runs whole loops in the framework's own way, in place of ``Node``; the engine is then not asked."""
    mark: Callable[[Leaf], Any] = _version
    """Something that is the same before and after exactly if nobody has written into the leaf in between."""
    bar: Callable[[Leaf, str], None] = _nothing
    """From now on, refuse to write into the leaf, for that reason."""
    root: Callable[[Leaf], Leaf] = _itself
    """The leaf whose memory this one looks into, as far as writing is concerned."""
    follow: Callable[[Leaf, Leaf], None] = _nothing
    """Let a leaf stand for another one with the same value, whose derivative it takes over."""
    viewed: Callable[[Leaf], bool] = _no
    """Whether somebody holds another leaf that changes when this one is written into."""
    array: Callable[[Leaf], bool] = _no
    """Whether a leaf, traced or not, is an array of the framework's own, into which code can write."""
    clone: Callable[[Leaf], Leaf] = _itself
    """Such an array in memory of its own, with the derivative of the one it is a copy of."""
    memory: Callable[[Leaf], tuple[int, int, int] | None] = _no_memory
    """Which memory such an array looks into, and its first and last byte there."""
    compiled: Callable[[Any], Any] | None = None
    """Runs a loop of a function's source in the framework's own way, from what its code says of it."""
    enter: Callable[[Leaf, bool], Leaf] | None = None
    """A leaf as a loop takes it that is followed; whether it is of the state, else a constant."""
    idle: Callable[[], bool] = _never
    """Whether nothing is differentiated at the moment, whatever the leaves say."""


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
    from ..engine.numpy.alias import Alias
    from ..engine.numpy.blank import Blank
    from ..engine.numpy.tape import ONLY_HERE
    from ..engine.numpy.traced import Traced, plain

    def level(leaf: Leaf) -> int:
        return leaf.level if isinstance(leaf, Traced) and not leaf.blank else 0

    def enter(leaf: Leaf, of_state: bool) -> Leaf:
        if not isinstance(leaf, Blank):
            return leaf
        return leaf.settle() if of_state else leaf.value

    def share(leaf: Leaf) -> Leaf:
        if isinstance(leaf, engine.Dual):
            return engine.Dual(leaf.value, leaf.tangent, leaf.level)
        return engine.Var(leaf.value, leaf.tape, leaf.index)

    def mark(leaf: Leaf) -> Any:
        return leaf.value  # a write makes a new value as long as somebody else holds the old one

    def bar(leaf: Leaf, reason: str) -> None:
        if isinstance(leaf, Traced):
            leaf.alias = leaf.alias or Alias()
            leaf.alias.refusal = reason

    def follow(leaf: Leaf, other: Leaf) -> None:
        if type(leaf) is type(other) and leaf.level == other.level:
            leaf.become(other)

    def root(leaf: Leaf) -> Leaf:
        while isinstance(leaf, Traced) and leaf.alias is not None and leaf.alias.base is not None:
            leaf = leaf.alias.base
        return leaf

    def viewed(leaf: Leaf) -> bool:
        alias = leaf.alias if isinstance(leaf, Traced) else None
        if alias is not None and any(view() is not None for view in alias.views or ()):
            return True
        while alias is not None and alias.base is not None:
            if getrefcount(alias.base) > ONLY_HERE:
                return True
            alias = alias.base.alias
        return False

    return Framework(
        engine, level, plain, share, mark=mark, bar=bar, root=root, follow=follow, viewed=viewed, enter=enter
    )


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


def _is_tensor(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["torch"].Tensor)


def torch_framework() -> Framework:
    """Programs on torch tensors: autograd follows them, and ``pebbling.torch`` runs the loop."""
    # Loops come before torch in the order of layers, and only a tensor reaches forward.
    node: Any = import_module("pebbling.torch.loops.node")

    def level(leaf: Leaf) -> int:
        return int(_is_tensor(leaf) and leaf.requires_grad)

    def plain(leaf: Leaf) -> Any:
        return leaf.detach() if _is_tensor(leaf) else leaf

    torch = sys.modules["torch"]

    def mark(leaf: Leaf) -> Any:
        return leaf._version if _is_tensor(leaf) and not leaf.is_inference() else None

    def clone(leaf: Leaf) -> Leaf:
        return leaf.clone()

    def idle() -> bool:
        return not torch.is_grad_enabled()

    return Framework(
        node,
        level,
        plain,
        _itself,
        node.execute,
        mark=mark,
        bar=node.bar,
        array=_is_tensor,
        clone=clone,
        memory=node.memory,
        idle=idle,
    )


def jax_framework() -> Framework:
    """Programs on JAX arrays: ``pebbling.jax`` compiles the loops of their source."""
    # Loops come before jax in the order of layers, and only a traced value reaches forward.
    source: Any = import_module("pebbling.jax.source")

    def execute(*args: Any) -> Any:
        raise PebblingError(
            "a value that jax traces was given to a loop of NumPy arrays: use pebbling.jax.fori_loop, scan or "
            "while_loop"
        )

    def level(leaf: Leaf) -> int:
        return int(_is_tracer(leaf))

    return Framework(source, level, _itself, _itself, execute, compiled=source.run)


def _is_tracer(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["jax"].core.Tracer)


_PLAIN: set[type] = set()
_loaded: dict[str, Framework] = {}
_TABLE: dict[str, tuple[Callable[[Leaf], bool], Callable[[], Framework]]] = {
    "pebbling": (_traced_here, numpy_framework),
    "autograd": (_is_box, autograd_framework),
    "torch": (_is_tensor, torch_framework),
    "jax": (_is_tracer, jax_framework),
    "jaxlib": (_is_tracer, jax_framework),
}
