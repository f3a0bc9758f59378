"""Derivatives of functions that know nothing of traced arrays: those of SciPy, which ask nobody before they compute.

``formula`` and ``own_rule`` let a stand-in take the place of such a function (see ``standins``). The value is still
the one that the function itself computes, bit by bit.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from .blank import Blank, handed_out, without_blanks
from .kinds import Composed, Derivatives, Primitive
from .refuse import name_of, refuse
from .standins import BEFORE, current, of_a_library, stand_in
from .traced import highest

_RULES = {
    "scipy.special": "special",
    "scipy.linalg": "scipy_linalg",
    "scipy.sparse": "scipy_sparse",
    "scipy.sparse.linalg": "scipy_sparse_solve",
    "scipy.ndimage": "scipy_ndimage",
    "scipy.signal": "scipy_signal",
    "scipy.integrate": "scipy_integrate",
    "scipy.interpolate": "scipy_interpolate",
    "scipy.stats": "scipy_stats",
}
"""Which rules belong to which package; they are loaded when the program has loaded that."""


def _load() -> None:
    for package in [package for package in _RULES if package in sys.modules]:
        importlib.import_module(f".rules.{_RULES.pop(package)}", __package__)


BEFORE.append(_load)
REFUSED: set[Any] = set()
"""Functions that are refused where something traced is given to them."""


def leaves_of(tree: Any) -> list[Any]:
    """The values in nested arguments."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return [tree]
    return [leaf for one in tree for leaf in leaves_of(one)]


def is_traced(*tree: Any) -> bool:
    """Whether one of the arguments is being differentiated."""
    return highest(leaves_of(tree)) is not None


def _plainly(original: Any, args: Any, kwargs: Any) -> Any:
    if any(isinstance(leaf, Blank) for leaf in leaves_of((args, kwargs))):
        args, kwargs = without_blanks(args), without_blanks(kwargs)
    result = original(*args, **kwargs)
    if of_a_library(sys._getframe(2)):
        return result
    return tuple(map(handed_out, result)) if type(result) is tuple else handed_out(result)


def formula(owner: Any, name: str, exact: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Register the derivative of ``owner.name`` by a formula of NumPy functions; ``exact`` if it also has the bits."""
    if not hasattr(owner, name):
        return lambda of: of
    original = current(owner, name)

    def register(of: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return kind.run(args, kwargs) if is_traced(args, kwargs) else _plainly(original, args, kwargs)

        kind = Composed(call, of, exact)
        stand_in(owner, name, call)
        return call

    return register


def own_rule(owner: Any, name: str, arrays: slice = slice(1)) -> Callable[[Callable[..., Derivatives]], Any]:
    """Register the vjp and jvp of ``owner.name``, as ``pebbling.numpy.rule`` does for functions of NumPy."""
    original = current(owner, name)

    def register(derive: Callable[..., Derivatives]) -> Any:
        kind = Primitive(original, derive, arrays, False, own=True)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return kind.run(args, kwargs) if is_traced(args, kwargs) else _plainly(original, args, kwargs)

        stand_in(owner, name, call)
        return kind

    return register


def refused_where_traced(owner: Any, names: str, way_out: str) -> None:
    """Refuse functions by name when something that they are given is traced."""
    for name in names.split():
        if hasattr(owner, name):
            _refused(owner, name, way_out)


def _refused(owner: Any, name: str, way_out: str) -> None:
    original = current(owner, name)
    REFUSED.add(vars(owner)[name])

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_traced(args, kwargs):
            raise refuse(f"{name_of(original)} has no derivative rule", way_out)
        return _plainly(original, args, kwargs)

    stand_in(owner, name, call)
