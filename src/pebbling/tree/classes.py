"""Classes by name, for files that tell which class a container had.

A name from a file is only looked up: no module is imported for it, no attribute is computed for it, and what is
found must be a class that trees take apart without running any of its code (a dataclass, a class of attrs, a named
tuple), that the program gave to ``register`` or to the registry of jax, torch or optree, that ``foreign.py`` knows, or
an enum. What a file names beyond that is refused.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np

from .foreign import foreign_node

_REGISTERED: dict[str, type] = {}
_BUILTINS: dict[str, type] = {
    name: getattr(builtins, name)
    for name in ("bool", "int", "float", "complex", "str", "bytes", "list", "tuple", "dict", "set", "frozenset")
} | {cls.__name__: cls for cls in (OrderedDict, defaultdict, deque, Counter)}
_SCALARS: dict[str, type] = {
    f"numpy.{cls.__name__}": cls for cls in vars(np).values() if isinstance(cls, type) and issubclass(cls, np.generic)
}
_KNOWN = _BUILTINS | _SCALARS
_NAMES = {cls: name for name, cls in _KNOWN.items()}


def remember(cls: type) -> None:
    """A class that the program registered: files may name it from now on."""
    _REGISTERED[_name(cls)] = cls


def known_name(cls: Any) -> str | None:
    """The name of a class of Python's or NumPy's own, such as the factory of a ``defaultdict``."""
    return _NAMES.get(cls) if isinstance(cls, type) else None


def known_class(name: str) -> type:
    """The class of that name among these."""
    if name not in _KNOWN:
        raise LookupError(f"{name!r} is none of the classes that a file may name")
    return _KNOWN[name]


def name_of(cls: type) -> str | None:
    """Under which name a container's or an enum's class is found again; ``None`` if it would not be."""
    name = _name(cls)
    try:
        return name if class_named(name) is cls else None
    except LookupError:
        return None


def class_named(name: str) -> type:
    """The class of that name, if the program has it and files may name it."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        raise LookupError(f"the class {name!r} is of a module that this program has not imported: import it first")
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not isinstance(found, type) or not _may_be_named(found):
        raise LookupError(
            f"{name!r} is no dataclass, named tuple or enum in this program, nor was it given to pebbling.tree.register"
        )
    return found


def _may_be_named(cls: type) -> bool:
    return is_named_tuple(cls) or is_fields(cls) or issubclass(cls, enum.Enum) or foreign_node(cls) is not None


def is_named_tuple(cls: type) -> bool:
    """Whether a class was made by ``namedtuple`` or ``NamedTuple``, and so is rebuilt from its fields."""
    fields = getattr(cls, "_fields", None)
    return issubclass(cls, tuple) and isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)


def is_fields(cls: type) -> bool:
    """Whether a class is a dataclass or made by attrs, and so is rebuilt from its attributes."""
    return dataclasses.is_dataclass(cls) or _by_attrs(cls)


def declared(cls: type) -> tuple[str, ...] | None:
    """The names of the fields that such a class declares."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(field.name for field in cls.__attrs_attrs__) if _by_attrs(cls) else None  # type: ignore[attr-defined]


def check_attribute(cls: type, name: str) -> None:
    """Raise unless an attribute of that name can be set without running code of the class or changing what it is."""
    if (name.startswith("__") and name.endswith("__")) or not name:
        raise LookupError(f"{name!r} is no attribute that {cls.__qualname__} could have been written with")
    fields = declared(cls) or ()
    for base in cls.__mro__:
        held = vars(base).get(name)
        if held is not None and name not in fields and hasattr(type(held), "__set__"):
            raise LookupError(f"{name!r} of {cls.__qualname__} is computed by it, and no file may set it")


def _by_attrs(cls: type) -> bool:
    # An exception is rebuilt by its arguments, whoever declared them.
    return isinstance(cls.__dict__.get("__attrs_attrs__"), tuple) and not issubclass(cls, BaseException)


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
