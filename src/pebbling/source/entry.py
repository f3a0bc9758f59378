"""The objects that one run of a loop begins with: which are its state, which stay as they are.

A name that the loop binds and needs again is state. A name that it only reads is a constant, unless it
holds something that the loop could change without naming it: a list, a dict or an object that is
handed to a function or whose method is called. Arrays among the constants are locked while the loop
runs; if a function writes into one all the same, the run begins anew with that name as state.
"""

from __future__ import annotations

import copy
import random
import types
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ..errors import SourceError
from ..loops.frameworks import Framework
from ..tree.reach import Spot
from .containers import ITERATORS, container_of
from .facts import Facts
from .graph import CONST, REF, UNBOUND, Taken, is_fixed, is_module, rebinds, shared
from .opaque import check_elements

SOURCES = "the items of the loop"
OUTSIDE = "outside"


class Entry:
    """The objects of a loop before its first step."""

    def __init__(
        self,
        facts: Facts,
        state: Sequence[Any],
        consts: Sequence[Any],
        emits: Sequence[Any],
        sources: Sequence[Any],
        promoted: set[str],
        spots: Sequence[Spot] = (),
    ) -> None:
        """``promoted`` are constants that turned out to change, ``sources`` what the loop iterates over.

        ``spots`` are what the loop changes without naming it.
        """
        self.facts, self.spots = facts, spots
        named = dict(zip([*facts.consts, *facts.emits], [*consts, *emits]))
        _check_modules(facts, {**dict(zip(facts.state, state)), **named})
        carried = [name for name in facts.consts if name in promoted or _may_change(facts, name, named[name])]
        carried += [name for name in facts.emits if name in promoted]
        self.fixed = [name for name in facts.consts if name not in carried]
        self.carried = carried
        """Constants by name that are state after all."""
        self.names = [*facts.state, *carried]
        roots = [*zip(facts.state, state), *[(name, named[name]) for name in carried]]
        first = Taken({}, fresh=True)
        for _, value in roots:
            first.take(value)
        self.sources_carried = SOURCES in promoted or any(_is_state(first, source) for source in sources)
        if self.sources_carried:
            roots += [(SOURCES, source) for source in sources]
        roots += [(spot.words, spot.get()) for spot in spots]
        self.roots = [name for name, _ in roots]
        """The names of all that is state: variables, constants that are carried, what the loop runs over, spots."""
        self.const_roots = [(name, named[name]) for name in self.fixed]
        self.const_roots += [] if self.sources_carried else [(SOURCES, source) for source in sources]
        only_read = Taken({})
        for _, value in self.const_roots:
            only_read.take(value)
        held = _unwritten(roots, facts, facts.written | facts.promoted_paths, only_read)
        self._take(roots, held)
        objects = carried or sources or held or spots or any(map(_is_container, self.const_shapes))
        self.is_simple = not objects
        """Whether constants are leaves, and state is what the loop binds."""

    def _take(self, roots: list[tuple[str, Any]], held: list[tuple[str, Any]]) -> None:
        """Take everything apart; ``held`` are arrays inside of objects of the state that stay what they are."""
        self.given = Taken({}, fresh=True)
        for _, value in held:
            self.given.take(value)
        known = {id(one): (CONST, place) for place, one in enumerate(self.given.objects)}
        self.taken = Taken(known, fresh=True)
        self.owners: list[str] = []
        """To which name each token belongs."""
        shapes = []
        for name, value in roots:
            shapes.append(self.taken.take(value))
            self.owners += [name] * (len(self.taken.objects) - len(self.owners))
        self.shapes = tuple(shapes)
        self.originals = self.taken.objects
        self.leaves = list(self.taken.leaves)
        self.most = len(self.leaves) + len(held)
        self.given = Taken({id(one): (OUTSIDE, token) for token, one in enumerate(self.originals)}, fresh=True)
        self.const_roots = [*held, *self.const_roots]
        self.const_shapes: list[Any] = []
        self.const_ends: list[int] = []
        self.const_leaves: list[int] = []
        self.const_needs: list[set[int]] = []
        """For each constant, the earlier ones with an object that it reaches too."""
        for _, value in self.const_roots:
            self.const_shapes.append(self.given.take(value))
            needs = {bisect_right(self.const_ends, one) for one in _references(self.const_shapes[-1])}
            self.const_needs.append(needs - {len(self.const_ends)})
            self.const_ends.append(len(self.given.objects))
            self.const_leaves.append(len(self.given.leaves))
        self.const_names = [name for name, _ in self.const_roots]
        self.first_const = len(held)
        """Where the constants that the loop's function takes begin among all."""

    def shared_with_state(self) -> list[str]:
        """Constants that reach an object of the state: they have to be state as well."""
        return [name for name, shape in zip(self.const_names, self.const_shapes) if _mentions(shape)]

    def check_copies(self) -> None:
        """Refuse an object of which there can be no snapshot."""
        parted: dict[int, str] = {}
        for owner, value in zip(self.owners, self.originals):
            if type(value) is ndarray and value.dtype.hasobject:
                check_elements(self.facts.where, value)
            if container_of(type(value)) is None and not hasattr(value, "dtype") and not is_fixed(value):
                copied: dict[int, Any] = {}
                try:
                    copy.deepcopy(value, copied)
                except Exception as error:
                    raise SourceError(
                        f"{self.facts.where}: {owner} holds {value!r}, which can't be copied ({error}), and the loop "
                        "may change it: use it before or after the loop, or a list in place of an iterator"
                    ) from error
                self._check_parted(owner, value, copied.get(id(copied), ()), parted)
                if any(getattr(one, "requires_grad", False) for one in copied.get(id(copied), ())):
                    raise SourceError(
                        f"{self.facts.where}: {owner} holds {type(value).__name__}, an object that can't be looked "
                        "into and has tensors that are being differentiated, and the loop may change it: snapshots "
                        "would have copies of these tensors, which would take their gradients. Pass the tensors to the "
                        "function themselves"
                    )

    def _check_parted(self, owner: str, value: Any, copied: Sequence[Any], parted: dict[int, str]) -> None:
        """Refuse a copy that parts an object from what others hold; ``parted`` has what has been copied so far."""
        for one in copied:
            container = container_of(type(one))
            changes = (container is not None and container.mutable) or isinstance(one, np.random.BitGenerator)
            if one is value or not (changes or restorer(type(one)) is not None):
                continue
            other = parted.setdefault(id(one), owner)
            if other is not owner or self.taken.met(one) or self.given.met(one):
                raise SourceError(
                    f"{self.facts.where}: {owner} holds {type(value).__name__}, an object that can't be looked into, "
                    f"and {type(one).__name__} in it is used by others as well: snapshots would have two of it. Reach "
                    "it in one way alone"
                )

    def check_views(self, written: set[int], framework: Framework) -> None:
        """Refuse an array that the loop writes into while another name looks into the same memory."""
        count = len(self.originals)
        for token in written:
            for place, array in enumerate([*self.originals, *self.given.objects]):
                if shared(framework, self.originals[token], array):
                    other = self.owners[place] if place < count else self.const_owner(place - count)
                    raise SourceError(
                        f"{self.facts.where}: the loop writes into an array of {self.owners[token]} that shares memory "
                        f"with one of {other}: make one of them a copy ({copying(framework)})"
                    )
            if framework.viewed(self.originals[token]):
                raise SourceError(
                    f"{self.facts.where}: the loop may write into an array of {self.owners[token]} that shares memory "
                    "with another one outside of the loop, a view or the array it is a view of, and what is done with "
                    "that one later would be added to the gradient in another order: make one of them a copy (.copy())"
                )

    def const_owner(self, place: int) -> str:
        """The name of the constant that an object among the constants belongs to."""
        return next(name for name, end in zip(self.const_names, self.const_ends) if place < end)

    def const_owner_of(self, value: Any) -> str:
        """The name of the constant that reaches an object."""
        return self.const_owner(next(place for place, one in enumerate(self.given.objects) if one is value))

    def written_tokens(self, paths: set[tuple[str, ...]]) -> set[int]:
        """The arrays that the loop writes into, by the paths through which it does."""
        found: set[int] = set()
        for token, (owner, value) in enumerate(zip(self.owners, self.originals)):
            if container_of(type(value)) is None and (owner,) in paths:
                found.add(token)
        tokens = {id(one): token for token, one in enumerate(self.originals)}
        for path in paths:
            if len(path) == 2:
                root = next((one for one, name in zip(self.originals, self.owners) if name == path[0]), None)
                found |= {tokens[id(one)] for one in _under(root, path[1]) if id(one) in tokens}
        return found


def _check_modules(facts: Facts, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name in facts.changed and is_module(value):
            raise SourceError(
                f"{facts.where}: the loop assigns to attributes of {name}, a module of torch, and would do so again "
                "whenever a step is replayed: use a local variable, and assign it after the loop"
            )


def _under(owner: Any, attribute: str) -> list[Any]:
    """The objects that an attribute of an object reaches; all that it reaches if there is no such attribute."""
    part = getattr(owner, "__dict__", {}).get(attribute, UNBOUND)
    taken = Taken({})
    taken.take(owner if part is UNBOUND else part)
    return taken.objects


def _unwritten(
    roots: list[tuple[str, Any]], facts: Facts, paths: Collection[tuple[str, ...]], only_read: Taken
) -> list[tuple[str, Any]]:
    """Arrays inside of objects that the loop is not known to write into, with the name they belong to.

    So is an array that a name of the state begins with, if it is a constant too: carried from step to step, its
    cotangent would not be added up together with that of the constant.
    """
    written: set[int] = set()
    direct = {id(value) for name, value in roots if name in facts.state}
    found: dict[int, tuple[str, Any]] = {}
    for name, value in roots:
        taken = Taken({})
        taken.take(value)
        arrays = [one for one in taken.objects if container_of(type(one)) is None and hasattr(one, "dtype")]
        if (name,) in paths:
            written |= {id(one) for one in arrays}
        for path in paths:
            if len(path) == 2 and path[0] == name:
                written |= {id(one) for one in _under(value, path[1])}
        for one in arrays:
            if id(one) not in direct or only_read.met(one):
                found.setdefault(id(one), (name, one))
    return [pair for key, pair in found.items() if key not in written]


def _is_state(taken: Taken, source: Any) -> bool:
    return taken.met(source) or any(has_mutable(one) for one in _children(source))


def _is_container(shape: Any) -> bool:
    return type(shape) is tuple


def _may_change(facts: Facts, name: str, value: Any) -> bool:
    if is_fixed(value):
        return False
    if name in facts.changed:
        return True
    if type(value) is ndarray:
        return False
    if type(value) is types.FunctionType:
        return rebinds(value.__code__) or any(has_mutable(child) for child in value.__closure__ or ())
    if has_generator(value):
        return True
    container = container_of(type(value))
    if container is None:
        # Something opaque: an array of a framework or a callable stays what it is, others may not.
        return name in facts.exposed and not callable(value) and not hasattr(value, "dtype")
    if not container.mutable:
        return any(has_mutable(child) for child in container.parts(value)[0])
    return name in facts.exposed or any(has_mutable(child) for child in container.parts(value)[0])


def has_mutable(value: Any) -> bool:
    """Whether a container that can change is reached from a value."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        container = None if type(one) is ndarray or id(one) in seen or is_fixed(one) else container_of(type(one))
        if container is None:
            continue
        seen.add(id(one))
        if container.mutable and type(one) is not types.CellType:
            return True
        if type(one) is types.FunctionType and rebinds(one.__code__):
            return True
        waiting += container.parts(one)[0]
    return False


def has_generator(value: Any) -> bool:
    """Whether a generator of random numbers is reached from a value, through containers."""
    taken = Taken({})
    taken.take(value)
    return any(restorer(type(one)) is not None and not isinstance(one, bytearray) for one in taken.leaves)


def _children(source: Any) -> Sequence[Any]:
    container = container_of(type(source))
    return () if container is None else container.parts(source)[0]


def _references(shape: Any) -> Iterator[int]:
    """The objects that a shape refers to a second time."""
    if type(shape) is tuple and len(shape) == 2 and shape[0] is REF:
        yield shape[1]
    elif type(shape) is tuple and len(shape) == 4:
        for child in shape[3]:
            yield from _references(child)


def _mentions(shape: Any) -> bool:
    if type(shape) is not tuple:
        return False
    if len(shape) == 2:
        return bool(shape[0] == OUTSIDE)
    return any(map(_mentions, shape[3]))


RESTORE: dict[type, Callable[[Any, Any], None]] = {
    np.random.Generator: lambda old, new: setattr(old.bit_generator, "state", new.bit_generator.state),
    np.random.RandomState: lambda old, new: old.set_state(new.get_state()),
    random.Random: lambda old, new: old.setstate(new.getstate()),
    bytearray: lambda old, new: old.__setitem__(slice(None), new),
    **dict.fromkeys(ITERATORS, lambda old, new: _go_on(old, new)),
}


def _go_on(iterator: Any, other: Any) -> None:
    """Set an iterator to the place where a copy of it is."""
    place = other.__reduce__()[2:]
    if place:
        iterator.__setstate__(*place)
    else:
        deque(iterator, 0)


def copying(framework: Framework) -> str:
    """How a user copies an array."""
    return ".copy()" if framework.execute is None else ".clone()"


def restorer(cls: type) -> Callable[[Any, Any], None] | None:
    """How an object of a class that is no container takes over what became of its copy; ``None`` if it does not."""
    if cls.__name__ == "Generator" and cls.__module__.partition(".")[0] == "torch":
        return lambda old, new: old.set_state(new.get_state())
    return RESTORE.get(cls)


def private(value: Any, framework: Framework) -> Any:
    """A copy of an object that can be given back later."""
    return framework.clone(value) if framework.array(value) else copy.deepcopy(value)
