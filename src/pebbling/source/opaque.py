"""What snapshots can't keep together: objects that can't be looked into, keys and members of sets, remembered results.

A snapshot holds what an object contains, and a replay makes from it the objects that the loop has made anew.

    class Body: ...
    for i in range(n):
        body = Body()
        bodies.append(body)
        weight[body] = 0.5      # a key by identity: the body that a replay makes is another one

So what depends on which object it is must hold none that the loop has made: keys of dicts, members of sets, weak
references. Objects that were there before the loop stay the same ones.

An object that can't be looked into (``containers.py``) is copied as a whole. The copy must not part it from others: no
traced value may be in it, and nothing that the loop carries besides.

``functools.lru_cache`` keeps its results to itself. If these depend on nothing but numbers and on what stays as it
is, it makes no difference when they were computed. Otherwise they are state that can't be carried.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from ..errors import SourceError
from ..tree.reach import Reach
from .containers import Members, container_of
from .graph import FIXED, is_fixed

MOST = 2_000
"""How many objects are looked at behind one that can't be looked into."""
_ENDS = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType, types.FrameType)
_TRANSPARENT = frozenset({*FIXED, bytearray, np.random.Generator, np.random.RandomState}) - {Members}
MEMO = type(functools.lru_cache(len))


def is_value(one: Any) -> bool:
    """Whether it makes no difference which of several equal objects it is."""
    return all(map(is_value, one)) if type(one) is tuple else type(one) is not Members and is_fixed(one)


def behind(one: Any) -> Iterator[Any]:
    """What an object that can't be looked into refers to, weakly as well, as Python's collector of garbage sees it."""
    seen, waiting = set[int](), deque(_referents(one))
    while waiting and len(seen) < MOST:
        other = waiting.popleft()
        if id(other) in seen or type(other) in FIXED or isinstance(other, _ENDS):
            continue
        seen.add(id(other))
        yield other
        waiting.extend(_referents(other))


def _referents(one: Any) -> list[Any]:
    if isinstance(one, weakref.ref):
        return [one()]
    if isinstance(one, ndarray):
        return one.ravel().tolist() if one.dtype.hasobject and one.dtype.names is None else []
    return gc.get_referents(one)


def keyed(shapes: Iterable[Any]) -> Iterator[Any]:
    """The keys of all dicts in some shapes."""
    for shape in shapes:
        if type(shape) is tuple and len(shape) == 4:
            if issubclass(shape[0], dict):
                yield from _flat(shape[2])
            yield from keyed(shape[3])


def _flat(rest: Any) -> Iterator[Any]:
    for one in rest:
        if type(one) is tuple and not is_value(one):
            yield from _flat(one)
        elif not isinstance(one, type | types.FunctionType):
            yield one


def check_identities(where: str, ones: Iterable[Any], stays: Callable[[Any], bool], what: str) -> None:
    """Refuse objects that the loop has made where it matters which ones they are."""
    for one in ones:
        if not is_value(one) and not stays(one) and not isinstance(one, _ENDS):
            raise SourceError(
                f"{where}: {type(one).__name__} that the loop has made {what}, and a replay would make another one: "
                "use numbers or text in place of the object, or make the objects before the loop"
            )


def check_leaves(
    where: str,
    leaves: Iterable[Any],
    level: Callable[[Any], int],
    stays: Callable[[Any], bool],
    held: Callable[[Any], bool],
) -> None:
    """Look behind the leaves that are neither numbers nor arrays; ``held`` says what the state has besides."""
    for leaf in leaves:
        cls = type(leaf)
        if cls is ndarray:
            if leaf.dtype.hasobject:
                check_elements(where, leaf)
        elif cls is Members:
            check_identities(where, leaf.members, stays, "is a member of a set")
        elif cls not in _TRANSPARENT and not level(leaf) and not hasattr(leaf, "dtype") and not is_fixed(leaf):
            for one in behind(leaf):
                if level(one):
                    raise SourceError(
                        f"{where}: {cls.__name__}, an object that can't be looked into, holds a value that is being "
                        "differentiated, whose derivative would be lost: keep it in a list, a dict or an object of "
                        "your own"
                    )
                if held(one) and not stays(one):
                    container = container_of(type(one))
                    if container is not None and container.mutable:
                        check_identities(where, [one], stays, f"is held by {cls.__name__}")


def check_elements(where: str, array: ndarray) -> None:
    """Refuse an array of objects that can change: they can't be carried from step to step."""
    for one in array.ravel().tolist() if array.dtype.names is None else [array]:
        if not is_value(one):
            raise SourceError(
                f"{where}: an array of dtype object holds {type(one).__name__}, which can't be looked into there: "
                "use a list"
            )


class Memos:
    """The functions that remember their results (``functools.lru_cache``) among what a loop reaches."""

    def __init__(self, memos: list[Any], asked: bool) -> None:
        """``asked``: whether code that the loop reaches asks them how many results they have."""
        self.memos, self.asked = memos, asked
        self._before = [memo.cache_info() for memo in memos]
        self._reached: dict[int, list[Any]] = {}

    def forget(self) -> None:
        """Begin anew: what a run has computed that is given up is forgotten."""
        for place, memo in enumerate(self.memos):
            if self._before[place].misses != memo.cache_info().misses or place in self._reached:
                memo.cache_clear()
            self._before[place] = memo.cache_info()
        self._reached.clear()

    def check(self, where: str, changes: Callable[[Any], bool]) -> None:
        """Refuse a memo that has computed something from what the loop changes, or follows, since it was last asked."""
        for place, memo in enumerate(self.memos):
            before, now = self._before[place], memo.cache_info()
            if before == now:
                continue
            self._before[place] = now
            if self.asked:
                _refuse_memo(where, memo, "and is asked for how many they are")
            if before.misses == now.misses:
                continue
            keys = [key for one in gc.get_referents(memo) if type(one) is dict for key in one if not is_value(key)]
            if place not in self._reached:
                self._reached[place] = _all_behind([memo.__wrapped__])
            if any(map(changes, [*self._reached[place], *(_all_behind(keys) if keys else ())])):
                _refuse_memo(where, memo, "which depend on what the loop changes, or on what is being differentiated")


def _all_behind(values: list[Any]) -> list[Any]:
    reach = Reach(values)
    deque(reach, 0)
    return [*reach.met.values(), *[one for one, _ in reach.leaves]]


def _refuse_memo(where: str, memo: Any, why: str) -> None:
    name = getattr(memo, "__name__", "a function")
    raise SourceError(
        f"{where}: {name} remembers its results (functools.lru_cache), {why}, and a replay can't begin with those that "
        f"there were: call {name}.__wrapped__, or keep results in a dict of your own"
    )
