"""What a loop runs over, by number, so that any step can be taken again.

Ranges, lists, arrays, dicts and their ``zip``, ``enumerate`` and ``reversed`` are looked into at the moment
of the step, as plain Python does; what they hold is part of the loop's state or constants. Any other
iterator is consumed once, its items remembered and locked.
"""

from __future__ import annotations

import builtins
import gc
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from numpy import ndarray

from ..errors import SourceError
from ..loops.frameworks import framework_of, numpy_framework
from ..loops.slots import ArraySlots
from .graph import Builder, Taken, is_module

Fetch = Callable[[int], Any]
UNKNOWN = -1
"""The length of a range with traced bounds."""
_DICT_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


class View:
    """Items that are found by number in objects of known length."""

    length: int
    sources: list[Any]
    """The objects, which may change and hold traced arrays."""
    where = ""

    def place(self, where: str) -> None:
        """Say which loop it is for."""
        self.where = where

    def bind(self, sources: Iterator[Any]) -> Fetch:
        """How items are found in objects that stand for the sources."""
        raise NotImplementedError

    def real(self) -> Any:
        """What plain Python would iterate over."""
        raise NotImplementedError

    def check_end(self) -> None:
        """Refuse a source that has another length now that the loop has run through it."""


class Listed(View):
    """A range, list, tuple, text or array."""

    def __init__(self, sequence: Any) -> None:
        self.sequence, self.length = sequence, len(sequence)
        self.sources = [] if type(sequence) in (range, str, bytes) else [sequence]

    def bind(self, sources: Iterator[Any]) -> Fetch:
        if not self.sources:
            return self.sequence.__getitem__
        sequence, length, where = next(sources), self.length, self.where
        if type(sequence) is not list:
            return sequence.__getitem__

        def fetch(index: int) -> Any:
            if len(sequence) != length:
                _refuse_changed(where, length, len(sequence))
            return sequence[index]

        return fetch

    def real(self) -> Any:
        return self.sequence

    def check_end(self) -> None:
        if len(self.sequence) != self.length:
            _refuse_changed(self.where, self.length, len(self.sequence))


class Keyed(View):
    """A dict, or its keys, values or items."""

    def __init__(self, mapping: Any, kind: str, original: Any) -> None:
        self.mapping, self.kind, self.original = mapping, kind, original
        self.keys, self.length, self.sources = list(mapping), len(mapping), [mapping]

    def bind(self, sources: Iterator[Any]) -> Fetch:
        mapping, keys, kind, length, where = next(sources), self.keys, self.kind, self.length, self.where

        def fetch(index: int) -> Any:
            key = keys[index]
            if len(mapping) != length:
                raise RuntimeError("dictionary changed size during iteration")
            if key not in mapping:
                raise SourceError(
                    f"{where}: the loop deletes the key {key!r} of the dict it iterates over: take list(…) of it"
                )
            return key if kind == "keys" else mapping[key] if kind == "values" else (key, mapping[key])

        return fetch

    def real(self) -> Any:
        return self.original

    def check_end(self) -> None:
        if len(self.mapping) != self.length:
            raise RuntimeError("dictionary changed size during iteration")


class Joined(View):
    """``zip``, ``enumerate`` and ``reversed`` of other views."""

    def __init__(self, func: Any, parts: list[View], start: int = 0) -> None:
        self.func, self.parts, self.start = func, parts, start
        lengths = [part.length for part in parts]
        self.length = UNKNOWN if UNKNOWN in lengths else min(lengths, default=0)
        self.sources = [source for part in parts for source in part.sources]

    def place(self, where: str) -> None:
        for part in self.parts:
            part.place(where)

    def bind(self, sources: Iterator[Any]) -> Fetch:
        fetches = [part.bind(sources) for part in self.parts]
        if self.func is builtins.zip:
            return lambda index: tuple([fetch(index) for fetch in fetches])
        (fetch,) = fetches
        if self.func is builtins.enumerate:
            start = self.start
            return lambda index: (start + index, fetch(index))
        last = self.length - 1
        return lambda index: fetch(last - index)

    def real(self) -> Any:
        if self.func is builtins.enumerate:
            return enumerate(self.parts[0].real(), self.start)
        return self.func(*[part.real() for part in self.parts])

    def check_end(self) -> None:
        for part in self.parts:
            part.check_end()


class Spanned(View):
    """A range whose bounds are known only when a compiled loop runs."""

    def __init__(self, bounds: Sequence[Any]) -> None:
        self.bounds, self.sources, self.length = bounds, list(bounds), UNKNOWN

    def real(self) -> Any:
        return range(*self.bounds)


def view_of(value: Any) -> View | None:
    """A view of an object whose items can be found by number; ``None`` of any other."""
    cls = type(value)
    if isinstance(value, View):
        return value
    if cls in (range, list, tuple, str, bytes):
        return Listed(value)
    if cls is dict:
        return Keyed(value, "keys", value)
    if is_module(value) and hasattr(value, "__len__") and hasattr(value, "__iter__"):
        parts = list(value)
        return Listed(parts) if len(parts) == len(value) else None
    if cls in _DICT_VIEWS:
        mapping = next((one for one in gc.get_referents(value) if isinstance(one, dict)), None)
        return None if type(mapping) is not dict else Keyed(mapping, _DICT_VIEWS[cls], value)
    framework = None if cls is ndarray or _is_of_jax(cls) else framework_of([value])
    if framework is not None and framework.array(value) and value.ndim > 0:
        return Listed(tuple(value))  # an iterator over it takes it apart at once, and so sums up its cotangents
    if (cls is ndarray or _is_of_jax(cls) or framework is not None) and getattr(value, "ndim", 0) > 0:
        return Listed(value)
    return None


def spanned(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``range(*args)``, also of traced bounds where a framework can run a loop over that."""
    try:
        return range(*args, **kwargs)
    except Exception:
        framework = framework_of(args)
        if framework is None or framework.compiled is None or kwargs or not 1 <= len(args) <= 3:
            raise
        return Spanned(args)


def joined(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``func(*args, **kwargs)``, as a view where that is possible."""
    parts = [view_of(arg) for arg in (args[:1] if func is builtins.enumerate else args)]
    views = [part for part in parts if part is not None]
    if len(views) == len(parts) and parts:
        if func is builtins.zip and (not kwargs or len({part.length for part in views}) == 1):
            return Joined(func, views)
        if func is builtins.enumerate and len(args) + len(kwargs) <= 2:
            start = kwargs["start"] if "start" in kwargs else args[1] if len(args) > 1 else 0
            if type(start) is int:
                return Joined(func, views, start)
        if func is builtins.reversed and not kwargs and isinstance(views[0], Listed | Spanned):
            return Joined(func, views)
    return func(*[arg.real() if isinstance(arg, View) else arg for arg in args], **kwargs)


class Counted:
    """The steps of a ``while`` loop."""

    length: int | None = None
    sources: Sequence[Any] = ()

    def ready(self, step: int) -> bool:
        """Whether there is an item for this step."""
        return True

    def take(self, sources: Sequence[Any], start: int, stop: int) -> Iterator[Any]:
        """The items of steps ``start … stop-1``."""
        return iter(range(start, stop))

    def check_end(self) -> None:
        """Nothing can have changed."""

    def check_apart(self, entry: Any) -> None:
        """Nothing is shared."""


class Numbered:
    """The items of a view."""

    def __init__(self, view: View) -> None:
        self.view, self.length, self.sources = view, view.length, view.sources
        self._range = view.sequence if isinstance(view, Listed) and type(view.sequence) is range else None

    def ready(self, step: int) -> bool:
        return step < self.length

    def take(self, sources: Sequence[Any], start: int, stop: int) -> Iterator[Any]:
        if self._range is not None:
            return iter(self._range[start:stop])
        return map(self.view.bind(iter(sources)), range(start, stop))

    def check_end(self) -> None:
        self.view.check_end()

    def check_apart(self, entry: Any) -> None:
        """What is shared is known."""


class Consumed:
    """The items of an iterator, remembered."""

    length: int | None = None
    sources: Sequence[Any] = ()

    def __init__(self, iterable: Any, where: str) -> None:
        self._rest, self._where = iter(iterable), where
        self._kept: list[tuple[Any, list[Any]]] = []
        self._last: Any = None
        self._shelf = ArraySlots(numpy_framework())

    def ready(self, step: int) -> bool:
        while len(self._kept) <= step:
            self._check_last()
            try:
                item = next(self._rest)
            except StopIteration:
                return False
            except ValueError as error:
                if "read-only" in str(error):
                    raise self._refusal("writes into an array that it has yielded", "yield a copy") from error
                raise
            self._remember(item)
        return True

    def _remember(self, item: Any) -> None:
        taken = Taken({})
        shape = taken.take(item)
        framework = framework_of(taken.leaves)
        if framework is not None and any(map(framework.level, taken.leaves)):
            raise self._refusal("yields values that are being differentiated", "iterate over list(…) of it")
        if any(map(is_module, taken.leaves)):
            raise self._refusal("yields modules of torch", "iterate over list(…) of it")
        for leaf in taken.leaves:
            if type(leaf) is ndarray:
                self._shelf.lock(leaf)
        self._kept.append((shape, taken.leaves))
        self._last = item

    def _check_last(self) -> None:
        if self._kept:
            taken = Taken({})
            shape, leaves = self._kept[-1]
            same = taken.take(self._last) == shape and len(leaves) == len(taken.leaves)
            if not same or any(one is not two for one, two in zip(leaves, taken.leaves)):
                raise self._refusal("changes an object that it has yielded", "yield a new one")

    def take(self, sources: Sequence[Any], start: int, stop: int) -> Iterator[Any]:
        for shape, leaves in self._kept[start:stop]:
            (item,) = Builder(leaves).roots([shape])
            yield item
            if shape is not None and type(shape) is not int:
                taken = Taken({})
                if taken.take(item) != shape or any(one is not two for one, two in zip(leaves, taken.leaves)):
                    raise self._refusal("yields an object that the loop changes", "make a copy of it in the loop")

    def _refusal(self, reason: str, way_out: str) -> SourceError:
        return SourceError(f"{self._where}: the iterator of this loop {reason}: {way_out}")

    def check_end(self) -> None:
        """It has ended by itself."""

    def check_apart(self, entry: Any) -> None:
        """Refuse an iterator that looks at objects which the loop may change."""
        for one in _behind(self._rest):
            if entry.taken.met(one) and not isinstance(one, ndarray):
                raise self._refusal("looks at an object that the loop may change", "iterate over list(…) of it")


def _behind(iterator: Any) -> list[Any]:
    """Objects that an iterator refers to, a few steps deep."""
    found: dict[int, Any] = {}
    waiting = [(iterator, 4)]
    while waiting:
        one, depth = waiting.pop()
        if id(one) in found or isinstance(one, type | types.ModuleType | types.CodeType):
            continue
        found[id(one)] = one
        if isinstance(one, types.GeneratorType):
            frame = one.gi_frame
            taken = Taken({})
            for value in () if frame is None else frame.f_locals.values():
                taken.take(value)
            found.update({id(value): value for value in taken.objects})
            waiting += [(value, depth - 1) for value in taken.leaves if depth]
        elif depth and not isinstance(one, types.FunctionType):
            waiting += [(value, depth - 1) for value in gc.get_referents(one)]
    return list(found.values())


def _is_of_jax(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("jax", "jaxlib")


def items_of(iterable: Any, is_for: bool, where: str) -> Any:
    """The items of a loop."""
    if not is_for:
        return Counted()
    view = view_of(iterable)
    if view is None:
        return Consumed(iterable, where)
    view.place(where)
    return Numbered(view)


def real(iterable: Any, is_for: bool) -> Iterator[Any]:
    """What plain Python would iterate over."""
    if not is_for:
        return count()
    return iter(iterable.real() if isinstance(iterable, View) else iterable)


def _refuse_changed(where: str, before: int, after: int) -> None:
    raise SourceError(
        f"{where}: the loop changes the list that it iterates over, from {before} to {after} elements: iterate over a "
        "copy of it (for x in list(xs))"
    )
