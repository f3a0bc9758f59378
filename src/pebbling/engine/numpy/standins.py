"""Stand-ins for functions that NumPy does not hand over: ``np.array([x, y])`` with traced ``x``.

NumPy asks the arguments of most of its functions whether they want to answer themselves
(``__array_function__``), but not those of ``np.array`` and its kin, nor the elements of lists. While the code
of a user runs under a derivative, a stand-in takes the place of each such function: in ``numpy``, in every module
that has imported it by name (``from numpy import array``), and in the globals of the function whose derivative
is taken. A stand-in that is given nothing traced calls the original. When the outermost run ends, the originals
are back. Several threads may be inside; the last one puts them back.

Compiled modules call such functions too, as ``np.empty`` with a name ``np`` of their own, and take what comes for
an array without a look: they see a copy of NumPy's module without stand-ins.

>>> import numpy as np
>>> def first(*args):
...     return "ours"
>>> stand_in(np, "flatnonzero", first)
>>> with Tracing():
...     np.flatnonzero([1])
'ours'
>>> np.flatnonzero([1])
array([0])
>>> dismiss(np, "flatnonzero")
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import islice
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

Place = tuple[dict[str, Any], str, Any, Any]
"""A namespace and a name in it, the original and its stand-in."""

_OURS: dict[int, tuple[Any, Any]] = {}
"""The original and its stand-in, by the identity of the original."""
WRAPPED: list[Callable[[Any], Any]] = []
"""What gives a stand-in for objects that a program has by name, or ``None``."""
ISINSTANCE: list[Callable[[Any, Any], bool]] = []
"""What stands for ``isinstance`` in modules that use NumPy."""
_ABSENT: Any = object()
_CLASSES: list[tuple[type, str, Any, Any]] = []
"""Methods with a stand-in."""
_OWNERS: list[tuple[Any, str]] = []
_SKIPPED = sys.stdlib_module_names | {"numpy", "pebbling", "torch", "jax", "jaxlib", "sympy", "numba", "_pytest"}

_COMPILED = tuple(EXTENSION_SUFFIXES)
_LIBRARIES = _SKIPPED | {"scipy", "pandas", "matplotlib", "sklearn", "statsmodels", "skimage", "h5py", "xarray"}

TRACED_LIBRARIES: set[str] = set()
"""Packages in them whose own code runs on traced values."""
_UNTOUCHED = ModuleType("numpy")
"""NumPy without stand-ins, for compiled modules."""

_LOCK = threading.Lock()
_inside = 0
_modules = -1
"""How many modules have been looked at; -1: all are to be looked at anew."""
_last = ""
"""The name of the latest of them."""
_unfinished: list[str] = []
"""Those that may still gain names: the program itself, and modules whose import had not ended."""
_places: list[Place] = []
_extra: list[Place] = []
_cells: list[tuple[CellType, Any]] = []
BEFORE: list[Callable[[], None]] = []
"""What to call whenever modules have been imported since the last run."""


def current(owner: Any, name: str) -> Any:
    """What is called ``owner.name`` under a derivative."""
    original = vars(owner)[name]
    return _OURS[id(original)][1] if id(original) in _OURS else original


def of_a_library(frame: FrameType) -> bool:
    """Whether a frame belongs to a package that hands its arrays to compiled code."""
    name = str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] in _LIBRARIES and name.rpartition(".")[0] not in TRACED_LIBRARIES


def stand_in(owner: Any, name: str, ours: Any) -> None:
    """Let ``ours`` stand for ``owner.name`` in code that runs under a derivative."""
    global _modules
    if isinstance(owner, type):
        _CLASSES.append((owner, name, vars(owner).get(name), ours))
        return
    original = vars(owner)[name]
    if id(original) not in _OURS:
        _OWNERS.append((owner, name))
    _OURS[id(original)] = original, ours
    _modules = -1


def dismiss(owner: Any, name: str) -> None:
    """Undo ``stand_in``."""
    global _modules
    del _OURS[id(vars(owner)[name])]
    _OWNERS.remove((owner, name))
    _modules = -1


class Tracing:
    """A stretch of code that runs under a derivative; ``of`` is the function that is differentiated.

    Its globals and its closure count as well, and those of the functions in its closure.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Any = None) -> None:
        self._of = of

    def __enter__(self) -> None:
        global _inside
        with _LOCK:
            if _inside == 0:
                if len(sys.modules) != _modules:
                    _look_round()
                for namespace, name, original, ours in _places:
                    if namespace.get(name, _ABSENT) is original:
                        namespace[name] = ours
                for owner, name, _, ours in _CLASSES:
                    setattr(owner, name, ours)
            if self._of is not None:
                _enter_function(self._of, set())
            _inside += 1

    def __exit__(self, *error: object) -> None:
        global _inside
        with _LOCK:
            _inside -= 1
            if _inside == 0:
                for namespace, name, original, ours in (*_places, *_extra):
                    if namespace.get(name) is ours:
                        if original is _ABSENT:
                            del namespace[name]
                        else:
                            namespace[name] = original
                for cell, original in _cells:
                    cell.cell_contents = original
                for owner, name, original, _ in _CLASSES:
                    if original is None:  # it has that of its base
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
                _extra.clear()
                _cells.clear()


def _enter_function(of: Any, seen: set[int]) -> None:
    while isinstance(of, partial) or hasattr(of, "__wrapped__"):
        of = of.func if isinstance(of, partial) else of.__wrapped__
    of = getattr(of, "__func__", of)
    if not isinstance(of, FunctionType) or id(of) in seen:
        return
    seen.add(id(of))
    if id(of.__globals__) not in seen:
        seen.add(id(of.__globals__))
        for place in _in(of.__globals__):
            _extra.append(place)
            place[0][place[1]] = place[3]
    for cell in of.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # nothing in it yet
            continue
        ours = _OURS[id(value)][1] if id(value) in _OURS else _wrapper(value)
        if ours is not None:
            cell.cell_contents = ours
            _cells.append((cell, value))
        elif callable(value):
            _enter_function(value, seen)


def _in(namespace: dict[str, Any]) -> list[Place]:
    found = []
    # A name that comes and goes makes a dictionary grow: in all packages that import NumPy that would be a megabyte,
    # which no budget has room for. What a program asks of its values, it asks in its own files.
    asks = bool(ISINSTANCE) and not _is_installed(namespace)
    for name, value in list(namespace.items()):
        if id(value) in _OURS and _OURS[id(value)][0] is value:
            found.append((namespace, name, *_OURS[id(value)]))
        elif (ours := _wrapper(value)) is not None:
            found.append((namespace, name, value, ours))
        if value is np and asks and "isinstance" not in namespace:
            found.append((namespace, "isinstance", _ABSENT, ISINSTANCE[0]))
    return found


def _is_installed(namespace: dict[str, Any]) -> bool:
    return any(folder in str(namespace.get("__file__")) for folder in ("site-packages", "dist-packages"))


def _wrapper(value: Any) -> Any:
    """The stand-in for an object of a compiled class, which can't be told what to do with traced values."""
    kind = value if isinstance(value, type) else type(value)
    if not WRAPPED or (kind.__module__ in ("builtins", "numpy") and kind.__name__ not in _MAY_BE_METHODS):
        return None
    return next((ours for wrap in WRAPPED if (ours := wrap(value)) is not None), None)


_MAY_BE_METHODS = ("builtin_function_or_method", "method", "SuperLU")


def _bound(value: Any) -> Any:
    """The stand-in for a method that the program has taken from an object before."""
    if isinstance(value, MethodType):
        for _, _, original, ours in _CLASSES:
            if value.__func__ is original:
                return MethodType(ours, value.__self__)
    return None


WRAPPED.append(_bound)


def _look_round() -> None:
    """Find every module that has one of the originals by name.

    Modules stay where they are in ``sys.modules`` and new ones come last. So only those are looked at that came since
    the last time: a look at thousands would take more memory than a small budget has.
    """
    global _modules, _last
    for call in BEFORE:
        call()
    if not 0 < _modules <= len(sys.modules) or next(islice(sys.modules, _modules - 1, None)) != _last:
        _modules = 0
        _unfinished.clear()
        _places[:] = [(vars(owner), name, *_OURS[id(vars(owner)[name])]) for owner, name in _OWNERS]
        vars(_UNTOUCHED).update(vars(np))
    again = [module for name in _unfinished if (module := sys.modules.get(name)) is not None]
    if again:
        _places[:] = [place for place in _places if not any(place[0] is vars(module) for module in again)]
    names = [*_unfinished, *islice(sys.modules, _modules, None)]
    _modules, _last = len(sys.modules), next(reversed(sys.modules))
    _unfinished.clear()
    for module_name in names:
        module = sys.modules.get(module_name)
        if not isinstance(module, ModuleType):
            continue
        if module_name == "__main__" or getattr(module.__spec__, "_initializing", False):
            _unfinished.append(module_name)
        if str(getattr(module, "__file__", None)).endswith(_COMPILED):
            _places.extend((vars(module), name, np, _UNTOUCHED) for name, value in vars(module).items() if value is np)
        if module_name.partition(".")[0] not in _SKIPPED:
            _places.extend(_in(vars(module)))
