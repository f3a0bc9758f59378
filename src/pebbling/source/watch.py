"""What is compared once a loop: the global generators of random numbers, and objects that can't be looked into.

For loops that JAX compiles, so is everything else that a loop reaches (``net.py``): a step that is traced once
changes it once.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy as np
from numpy import ndarray

from ..errors import SourceError
from ..tree import fingerprint
from ..tree.reach import Spot
from .entry import restorer
from .graph import Taken, is_fixed, is_module
from .net import Net
from .program import SourceProgram


class Watch:
    """Compares before and after an outermost loop."""

    def __init__(self, net: Net, program: SourceProgram, inner: bool = False) -> None:
        self.net, self.program, self.inner = net, program, inner

    def __enter__(self) -> Watch:
        taken = Taken({})
        for _, content in self.net.before.spots:
            taken.take(content)
        for one in taken.objects:
            if type(one) is ndarray and not self.program.entry.taken.met(one):
                self.program.hold(one)
        if not self.inner:
            self.opaque = self._opaque()
            self.digests = [_digest(one) for one, _ in self.opaque]
            self.modules = [_attributes(one) for one, _ in self.opaque]
            self.random = _random_state()
        return self

    def _opaque(self) -> list[tuple[Any, str]]:
        """Objects that are not taken apart, and what messages call the place where they are."""
        entry = self.program.entry
        roots = [(name, value) for name, value in entry.const_roots if _may_hide(value)]
        roots += [(spot.words, content) for spot, content in self.net.before.spots if _may_hide(content)]
        found = []
        for words, value in roots:
            taken = Taken({})
            taken.take(value)
            found += [(one, words) for one in taken.leaves if not is_fixed(one) or is_module(one)]
        return [(one, words) for one, words in found if not isinstance(one, ndarray) and restorer(type(one)) is None]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.inner or kind is not None:
            return
        for (one, words), digest, before in zip(self.opaque, self.digests, self.modules):
            after = _attributes(one)
            for name in before.keys() | after.keys():
                if before.get(name) is not after.get(name):
                    self._refuse(f"{name} is changed by the loop or by a function that it calls")
            if digest != _digest(one):
                self._refuse(
                    f"{words} holds {type(one).__name__}, which is changed by the loop, without its being seen"
                )
        for owner in self.net.before.changed(("*",)):
            words = owner.words if isinstance(owner, Spot) else owner
            self._refuse(f"{words} is changed by the loop or by a function that it calls")
        if self.random != _random_state():
            self._refuse("the loop draws from the global random generator of numpy.random or random")

    def _refuse(self, reason: str) -> None:
        raise SourceError(
            f"{self.program.facts.where}: {reason}, and would be again whenever a step is replayed: carry it in a "
            "local variable or an argument (for random numbers, a numpy.random.Generator made in the function)"
        )


def _may_hide(value: Any) -> bool:
    return is_module(value) or not is_fixed(value)


def _attributes(one: Any) -> dict[str, Any]:
    """The attributes of a module of torch and of its parts, but for those that are torch's own."""
    if not is_module(one):
        return {}
    own = [part for part in one.modules() if not type(part).__module__.startswith("torch.nn.modules")]
    return {
        f"{type(part).__name__}.{name}": value
        for part in own
        for name, value in vars(part).items()
        if not name.startswith("_")
    }


def _digest(leaf: Any) -> str | None:
    """Something that tells whether an object that is no container has changed."""
    if is_fixed(leaf) or callable(leaf):
        return None
    if hasattr(leaf, "_version") and hasattr(leaf, "dtype"):
        return str(leaf._version)
    try:
        return fingerprint(leaf)
    except Exception:  # it can't be pickled, so nothing can be said about it
        return None


def _random_state() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest
