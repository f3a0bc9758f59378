"""Which framework follows the values of a loop: a table by the package that a value's type comes from.

This table is the one place of the library that names modules of later layers, and it does so in strings: a framework
(``engine/framework.py`` says what that is) is imported when the first value of its types comes along, which can only
come from a program that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from ..engine.framework import Framework
from ..engine.protocol import Leaf

__all__ = ["Framework", "compiler_of", "framework_of", "numpy_framework"]


def _traced_here(leaf: Leaf) -> bool:
    from ..engine.numpy import active

    return active(leaf)


def _is_box(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["autograd.tracer"].Box)


def _is_tensor(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["torch"].Tensor)


def _is_tracer(leaf: Leaf) -> bool:
    return isinstance(leaf, sys.modules["jax"].core.Tracer)


class FrameworkRow(NamedTuple):
    """One framework of the table."""

    follows: Callable[[Leaf], bool]
    """Whether a value whose type comes from its package is one that it follows."""
    module: str
    name: str
    """Its class."""


_JAX = FrameworkRow(_is_tracer, "jax.framework", "JaxFramework")
_TABLE = {
    "pebbling": FrameworkRow(_traced_here, "engine.numpy.framework", "NumpyFramework"),
    "autograd": FrameworkRow(_is_box, "engine.autograd", "AutogradFramework"),
    "torch": FrameworkRow(_is_tensor, "torch.framework", "TorchFramework"),
    "jax": _JAX,
    "jaxlib": _JAX,
}
_PLAIN: set[type] = set()


def framework_of(leaves: Iterable[Leaf]) -> Framework | None:
    """The framework that follows one of these leaves; ``None`` if all of them are plain.

    >>> import numpy as np
    >>> framework_of([np.ones(3), 1.0]) is None
    True
    """
    for leaf in leaves:
        cls = type(leaf)
        if cls in _PLAIN:
            continue
        entry = _TABLE.get(cls.__module__.partition(".")[0])
        if entry is None:
            _PLAIN.add(cls)
        elif entry.follows(leaf):
            return cast(Framework, _loaded(entry))
    return None


def numpy_framework() -> Framework:
    """Plain NumPy programs, by pebbling's own engine."""
    return cast(Framework, _loaded(_TABLE["pebbling"]))


def compiler_of(leaves: Iterable[Leaf]) -> Any:
    """The framework that compiles whole loops on arrays of its own, if one of the leaves is such; else ``None``."""
    jax = sys.modules.get("jax")
    if jax is None or not any(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    return _loaded(_JAX)


@cache
def _loaded(entry: FrameworkRow) -> Any:
    package = __package__.rpartition(".")[0]
    return getattr(import_module(f"{package}.{entry.module}"), entry.name)()
