"""What a loop reaches without being given it, and must not change: a replay would change it again.

Followed are the functions and classes that the loop's code names, the functions that those name, and so
on, in the user's own modules. Looked at before and after the sweep of an outermost loop are the globals
they read, their default arguments, closures and attributes, attributes of classes, and the state of the
two global random generators. Arrays among them are locked for as long as the derivative takes.

Not seen: changes that are undone within the sweep, and what installed packages keep to themselves.
"""

from __future__ import annotations

import os
import random
import sysconfig
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

import numpy as np
from numpy import ndarray

from ..errors import SourceError
from ..tree import fingerprint
from .containers import container_of
from .graph import Taken, is_fixed, is_module, overlap
from .parse import RUNTIME
from .program import SourceProgram, running

_INSTALLED = tuple(
    {os.path.join(path, "") for path in sysconfig.get_paths().values()} | {os.path.dirname(os.path.dirname(__file__))}
)
_MOST = 400  # functions and classes that are followed
_SKIPPED = frozenset({"__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__qualname__"})


class Watch:
    """Compares what a loop reaches before and after it has run."""

    def __init__(self, function: Any, program: SourceProgram) -> None:
        self.program = program
        self.places = list(_Reach(function, program)) if not running() else None

    def __enter__(self) -> Watch:
        if self.places is not None:
            self.before = [_look(holder, name) for holder, name, _ in self.places]
            self.random = _random_state()
            self._check_shared()
        return self

    def _check_shared(self) -> None:
        program, assert_places = self.program, self.places or []
        written = [program.framework.plain(program.entry.originals[token]) for token in program.written]
        for (_, _, words), (_, _, taken, _) in zip(assert_places, self.before):
            for one in taken.objects:
                if type(one) is ndarray:
                    program.hold(one)
                    shared = any(one is two or overlap(one, two) for two in written)
                else:
                    container = container_of(type(one))
                    shared = program.entry.taken.met(one) and (container is None or container.mutable)
                if shared:
                    raise SourceError(
                        f"{program.facts.where}: the loop changes an object that its functions also "
                        f"reach as {words}: pass "
                        "it to them as an argument"
                    )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.places is None or kind is not None:
            return
        for (holder, name, words), before in zip(self.places, self.before):
            if not _equal(before, _look(holder, name)):
                self._refuse(f"{words} is changed by the loop or by a function that it calls")
        if self.random != _random_state():
            self._refuse("the loop draws from the global random generator of numpy.random or random")

    def _refuse(self, reason: str) -> None:
        raise SourceError(
            f"{self.program.facts.where}: {reason}, and would be again whenever a step is replayed: "
            "carry it in a local "
            "variable or an argument (for random numbers, a numpy.random.Generator made in the function)"
        )


class _Reach:
    """The places that a loop's code can reach: who holds them, their names there, and how to call them."""

    def __init__(self, function: Any, program: SourceProgram) -> None:
        self.waiting: list[Any] = [(function, False)]
        objects = [*program.entry.originals, *program.entry.given.objects]
        self.waiting += [(_owner(one), False) for one in objects]
        self.modules = [one for one in (*program.entry.leaves, *program.entry.given.leaves) if is_module(one)]
        self.seen: set[int] = {id(one) for one in objects if isinstance(one, FunctionType)}
        self.given = set(self.seen)

    def __iter__(self) -> Iterator[tuple[Any, str, str]]:
        yield from self._of_code()
        seen: set[int] = set()
        for module in self.modules:
            for part in module.modules():
                if id(part) not in seen and not type(part).__module__.startswith("torch.nn.modules"):
                    seen.add(id(part))
                    for name in [one for one in vars(part) if not one.startswith("_")]:
                        yield vars(part), name, f"{type(part).__name__}.{name}"

    def _of_code(self) -> Iterator[tuple[Any, str, str]]:
        while self.waiting and len(self.seen) < _MOST:
            one, closed = self.waiting.pop()
            key = id(one)
            if (key in self.seen and key not in self.given) or not isinstance(one, FunctionType | type):
                continue
            self.seen.add(key)
            self.given.discard(key)
            if isinstance(one, type):
                yield from self._of_class(one)
            elif not one.__code__.co_filename.startswith(_INSTALLED):
                yield from self._of_function(one, closed)

    def _of_class(self, cls: type) -> Iterator[tuple[Any, str, str]]:
        for base in cls.__mro__:
            if base.__module__ == "builtins" or getattr(base, "__flags__", 0) & 1 << 9 == 0:
                continue
            for name, value in list(vars(base).items()):
                value = getattr(value, "__func__", value)
                value = value.fget if isinstance(value, property) else value
                if isinstance(value, FunctionType):
                    self.waiting.append((value, False))
                elif name not in _SKIPPED and not name.startswith("_abc") and not callable(value):
                    yield base, name, f"{base.__name__}.{name}"

    def _of_function(self, function: FunctionType, closed: bool) -> Iterator[tuple[Any, str, str]]:
        name = function.__name__
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            yield function, attribute, f"{attribute} of {name}"
        if closed:
            yield function, "__closure__", f"the closure of {name}"
        for used in _names(function.__code__):
            if used in function.__globals__:
                value = function.__globals__[used]
                if isinstance(value, ModuleType):
                    yield from self._of_module(value, function.__code__)
                elif isinstance(value, FunctionType | type | MethodType | BuiltinFunctionType):
                    self.waiting.append((getattr(value, "__func__", value), True))
                else:
                    self.waiting.append((_owner(value), False))
                    self.modules += [value] if is_module(value) else []
                    yield function.__globals__, used, f"the global {used}"

    def _of_module(self, module: ModuleType, code: CodeType) -> Iterator[tuple[Any, str, str]]:
        if getattr(module, "__file__", None) is None or str(module.__file__).startswith(_INSTALLED):
            return
        for used in _names(code):
            value = vars(module).get(used)
            if isinstance(value, FunctionType | type):
                self.waiting.append((value, True))
            elif used in vars(module) and not isinstance(value, ModuleType):
                yield vars(module), used, f"{module.__name__}.{used}"


def _owner(value: Any) -> Any:
    """The function or class whose code runs when an object is used."""
    return value if isinstance(value, FunctionType | type) else type(value)


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= _names(one)
    return found


def _look(holder: Any, name: str) -> tuple[Any, Any, Taken, list[str | None]]:
    value = (
        holder.get(name) if isinstance(holder, dict) else vars(holder).get(name) if isinstance(holder, type) else None
    )
    if isinstance(holder, FunctionType):
        value = getattr(holder, name)
        if name == "__dict__" and RUNTIME in value:  # what it knows of its own loops, which grows as they run
            value = {key: one for key, one in value.items() if key != RUNTIME}
    taken = Taken({})
    shape = taken.take(value)
    return value, shape, taken, [_digest(leaf) for leaf in taken.leaves]


def _digest(leaf: Any) -> str | None:
    """Something that tells whether an object that is no container has changed."""
    if is_fixed(leaf) or isinstance(leaf, ndarray) or callable(leaf):
        return None
    if hasattr(leaf, "_version") and hasattr(leaf, "dtype"):
        return str(leaf._version)
    try:
        return fingerprint(leaf)
    except Exception:  # it can't be pickled, so nothing can be said about it
        return None


def _equal(before: Any, after: Any) -> bool:
    (_, shape, taken, digests), (_, other, retaken, others) = before, after
    if shape != other or digests != others or len(taken.leaves) != len(retaken.leaves):
        return False
    return all(
        one is two or (is_fixed(one) and type(one) is type(two) and bool(one == two))
        for one, two in zip(taken.leaves, retaken.leaves)
    )


def _random_state() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest
