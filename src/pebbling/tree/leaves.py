"""The leaves of a tree: arrays of one of the known kinds, plain values, and anything else.

Arrays give up their bytes without a copy where they can. Plain values (numbers, text, classes,
functions) can't change and are carried along. Anything else, random generators for one, is carried
too: copied with ``copy.deepcopy``, and written as data where it has such a form (``objects.py``).
torch and jax are never imported here: an array of theirs can only come from a program that has
imported them.
"""

from __future__ import annotations

import copy
import enum
import importlib
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .arrays import Form, NumPy
from .data import Unreadable


class Kind(Protocol):
    """What the library must know of the arrays of one framework."""

    name: str

    def plain(self, leaf: Any) -> bool:
        """Whether this one has a dtype, a shape and bytes, and is nothing more."""

    def copy(self, leaf: Any) -> Any:
        """A private copy: same values, dtype, axis order in memory and device."""

    def nbytes(self, leaf: Any) -> int:
        """The size of its values."""

    def pack(self, leaf: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        """What it takes to make an array like it, picklable, and its bytes, not copied where possible."""

    def make(self, spec: tuple[Any, ...]) -> tuple[np.ndarray, Callable[[], Any]]:
        """Room for the bytes of such an array, and what turns it into one once it is filled."""

    def size(self, spec: tuple[Any, ...]) -> int:
        """How many bytes those are; ``Unreadable`` if no array of this kind is described like that."""

    def form(self, spec: tuple[Any, ...]) -> Form:
        """What those bytes are."""


class Carried:
    """A value that can't change, and takes no room to speak of."""

    name = "plain"

    def copy(self, leaf: Any) -> Any:
        return leaf

    def nbytes(self, leaf: Any) -> int:
        return 0


class Other(Carried):
    """Any other object: its pickle stands for it."""

    name = "other"

    def copy(self, leaf: Any) -> Any:
        # deepcopy would do the same, and leave hundreds of kB of tuples in Python's free lists, which budgets count.
        return pickle.loads(pickle.dumps(leaf, 5)) if is_generator(leaf) else copy.deepcopy(leaf)

    def nbytes(self, leaf: Any) -> int:
        try:
            return len(pickle.dumps(leaf, 5))
        except Exception:
            # It may still be kept in memory, where only Python's own guess is to be had.
            return sys.getsizeof(leaf)


PLAIN, OTHER = Carried(), Other()


def is_generator(leaf: Any) -> bool:
    """Whether a leaf is one of NumPy's random generators."""
    return type(leaf).__module__ == "numpy.random._generator"


def kind_of(leaf: Any) -> Kind | Carried:
    """Of what kind a leaf is."""
    cls = type(leaf)
    kind = _KINDS.get(cls)
    if kind is None:
        kind = _KINDS[cls] = _resolve(leaf)
    return kind if isinstance(kind, Carried) or kind.plain(leaf) else OTHER


def kind_named(name: str) -> Kind:
    """The kind of that name; brings in its framework, since an array of it is about to be made."""
    if name == NUMPY.name:
        return NUMPY
    if name not in ("torch", "jax"):
        raise Unreadable(f"there are no arrays of {name!r}")
    kind: Kind = importlib.import_module(f".arrays_{name}", __package__).KIND
    return kind


def _resolve(leaf: Any) -> Kind | Carried:
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(leaf) is torch.Tensor:
        return kind_named("torch")
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array):
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError(f"{leaf!r} is a value that jax is tracing: a snapshot can only be taken outside of jit")
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            return kind_named("jax")
    if isinstance(leaf, enum.Enum) or (isinstance(leaf, np.generic) and not isinstance(leaf, np.void)):
        return PLAIN
    return OTHER


NUMPY = NumPy()
_KINDS: dict[type, Kind | Carried] = {
    np.ndarray: NUMPY,
    np.memmap: NUMPY,
    **dict.fromkeys((types.NoneType, bool, int, float, complex, str, bytes, range, slice, types.EllipsisType), PLAIN),
    **dict.fromkeys((type, types.FunctionType, types.BuiltinFunctionType, np.dtype), PLAIN),
}
