"""The objects that the function of a loop is called with, made from leaves."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ..engine.numpy.hold import hold
from ..tree import kind_of
from .containers import container_of, of_class, same_parts
from .entry import restorer
from .graph import CONST, NEW, SIMPLE, Builder, Shape, shared

if TYPE_CHECKING:
    from .program import Leaves, SourceProgram


_MANY = 64  # constants, from which on it is quicker to look twice than to copy the table


class Opening(Builder):
    """Objects for one call: arrays that may be written into are copies if a snapshot holds them."""

    def __init__(
        self,
        program: SourceProgram,
        leaves: Sequence[Any],
        consts: Sequence[Any],
        initial: bool = False,
        taken: Any = None,
    ) -> None:
        """``taken`` has the ids of the constants; it is left out for the constants themselves."""
        super().__init__(leaves, consts)
        self._program, self._initial, self._state = program, initial, taken is not None
        self._ids = set(taken or ())
        self._copying = False
        self._ends: list[int] = []
        self._own: set[int] = set()
        """The ids of arrays of a framework that were copied for this call."""

    def open(self, shapes: Sequence[Shape], lost: Sequence[Shape]) -> list[Any]:
        """The roots; objects that no name reaches any more are made as well."""
        found = []
        for shape, copied in zip(shapes, self._program.guard.copied):
            self._copying = copied
            found.append(self._make(shape))
            self._ends.append(len(self.objects))
        self._copying = True
        for shape in lost:
            self._make(shape)
        self.roots(())
        return found

    def keep(self, objects: Sequence[Any], first: int) -> None:
        """Take objects as they are; ``first`` is the token of the first of them."""
        for one in objects:
            if type(one) is ndarray:
                self._program.hold(one)
                self._ids.add(id(one))
        self.objects += objects
        self.tokens += range(first, first + len(objects))

    def skip(self, count: int) -> None:
        """Pass over leaves."""
        for _ in range(count):
            next(self._leaves)

    def note(self, values: list[Any], tokens: Sequence[int | None]) -> None:
        """Take over objects that were made without a builder, one a name."""
        for value, token in zip(values, tokens):
            if token is not None:
                self.objects.append(value)
                self.tokens.append(token)
            self._ends.append(len(self.objects))

    def begin(self, cls: type, token: int, rest: Any) -> Any:
        """A container from before the loop stays the same object: whoever holds it sees what is in it now."""
        original = token != NEW and self._state
        return of_class(self._program.entry.originals[token], cls) if original else super().begin(cls, token, rest)

    def made(self, value: Any, token: int) -> Any:
        return unchanged(self._program.entry.originals[token], value) if token != NEW and self._state else value

    def leaf(self, value: Any, token: int) -> Any:
        program = self._program
        if program.framework.array(value):
            return self._array(value, token)
        if type(value) is not ndarray:
            # Traced values of a greater level are made for this very call.
            return program.framework.share(value) if 0 < program.framework.level(value) <= program.level else value
        written = self._state and (token == NEW or token in program.guard.written)
        if self._initial or not written:
            program.hold(value)
        elif not self._copying and program.sweeping:
            hold(program.held_now, value)  # a write that comes late is to be seen while the run can begin anew
        if id(value) in self._ids:
            # Two traced arrays may have one value, and are two arrays all the same.
            twin = kind_of(value).copy(value)
            twin.flags.writeable = written and self._copying
            return twin
        self._ids.add(id(value))
        copied = written and (self._initial or (self._copying and not value.flags.writeable))
        return kind_of(value).copy(value) if copied else value

    def _array(self, value: Any, token: int) -> Any:
        """An array of a framework: it can't be locked, and is copied wherever the loop may write into it."""
        written = token in self._program.guard.written or (self._copying and token == NEW)
        unlocked = self._initial and self._program.facts.trial and not self._program.framework.level(value)
        if not self._state or not (written or unlocked):
            return value
        value = self._program.framework.clone(value)
        self._own.add(id(value))
        return value

    def is_private(self, one: Any) -> bool:
        """Whether an array of a framework was copied for this call."""
        return id(one) in self._own

    def known(self, given: Given) -> Mapping[int, Any]:
        """The tokens of these objects, and the places of constants, by id."""
        found = {id(one): token for one, token in zip(self.objects, self.tokens) if token != NEW}
        if len(given.known) > _MANY:
            return ChainMap(given.known, found)
        found.update(given.known)
        return found

    def pinned(self) -> list[Any]:
        """Objects from before the loop that it may have changed: they are kept even if no name reaches them."""
        written = self._program.guard.written
        found = [
            (token, one)
            for one, token in zip(self.objects, self.tokens)
            if token != NEW and (token in written or _changes(one))
        ]
        return [one for _, one in sorted(found, key=itemgetter(0))]

    def by_root(self) -> list[tuple[str, list[Any]]]:
        """The objects of each name."""
        begin, found = 0, []
        for name, end in zip(self._program.entry.roots, self._ends):
            found.append((name, self.objects[begin:end]))
            begin = end
        return found

    def shares(self, one: Any, given: Given) -> bool:
        """Whether an array shares memory with another of the state, or with a constant."""
        return any(shared(self._program.framework, one, two) for two in [*self.objects, *given.objects])


class Given:
    """The constants as objects."""

    __slots__ = ("_copies", "_own", "fresh", "is_trial", "known", "leaves", "marks", "objects", "values")

    def __init__(self, program: SourceProgram, leaves: Leaves, initial: bool = False) -> None:
        """Before the first step, arrays inside of objects that can't be locked are copies."""
        self.leaves = leaves
        self._own: set[int] = set()
        trial = initial and program.facts.trial
        held = [self._copy(program, leaf) for leaf in leaves[: program.entry.first_const]] if trial else []
        self.is_trial = bool(self._own)
        self._copies: list[tuple[Any, list[Any], Any, int]] = []
        """Containers that were made for this call, and what they hold."""
        builder = Opening(program, [*held, *leaves[len(held) :]], ())
        self.values = self._made(program, builder, [*held, *leaves[len(held) :]])
        self.objects = builder.objects
        level = program.framework.level
        self.fresh = any(level(leaf) > program.level for leaf in leaves if type(leaf) not in SIMPLE)
        """Whether they were made for one call alone."""
        self.known: dict[int, Any] = {id(one): (CONST, place) for place, one in enumerate(self.objects)}
        self.marks = _one_a_memory(program.guard.marks(self.objects), program.framework.memory)

    def _made(self, program: SourceProgram, builder: Opening, leaves: Leaves) -> list[Any]:
        """The constants: the user's own objects, and copies of those with differentiated values in them."""
        entry, values = program.entry, []
        shapes, begin, first = entry.const_shapes, 0, 0
        copied: list[bool] = []
        for place, shape in enumerate(shapes):
            end, last = entry.const_ends[place], entry.const_leaves[place]
            whole = type(shape) is tuple and len(shape) == 4
            same = all(map(is_, leaves[begin:last], entry.given.leaves[begin:last]))
            same = same and not any(copied[before] for before in entry.const_needs[place])
            copied.append(not same)
            if whole and same:
                builder.keep(entry.given.objects[first:end], first)
                values.append(entry.const_roots[place][1])
                builder.skip(last - begin)
            else:
                values += builder.roots([shape])
                for at in range(first, end) if whole else ():
                    one = builder.objects[at]
                    container = container_of(type(one))
                    if container is not None and container.mutable:
                        children, rest = container.parts(one)
                        self._copies.append((one, list(children), rest, at))
            begin, first = last, end
        return values

    def changed(self) -> list[int]:
        """Which of the copies no longer hold what they held."""
        found = []
        for one, before, rest, place in self._copies:
            children, other = container_of(type(one)).parts(one)  # type: ignore[union-attr]
            if not same_parts(children, before) or rest != other:
                found.append(place)
        return found

    def _copy(self, program: SourceProgram, leaf: Any) -> Any:
        if not program.framework.array(leaf) or program.framework.level(leaf):
            return leaf
        leaf = program.framework.clone(leaf)
        self._own.add(id(leaf))
        return leaf

    def is_private(self, one: Any) -> bool:
        """Whether an array of a framework was copied for this call."""
        return id(one) in self._own


def _one_a_memory(marks: list[Any], memory: Callable[[Any], tuple[int, int, int] | None]) -> list[Any]:
    """Arrays of a framework that look into one memory, rows for one, count the writes into it together."""
    found: dict[Any, Any] = {}
    for place, one, mark in marks:
        where = memory(one)
        found.setdefault(place if where is None else ("memory", where[0]), (place, one, mark))
    return list(found.values())


def unchanged(original: Any, value: Any) -> Any:
    """The original of a container that can't change, if the one that was made in its place has the same in it."""
    container = container_of(type(original))
    assert container is not None
    (now, rest), (before, other) = container.parts(value), container.parts(original)
    same = len(now) == len(before) and all(map(is_, now, before)) and rest == other
    return original if same else value


def _changes(one: Any) -> bool:
    container = container_of(type(one))
    return container.mutable if container is not None else restorer(type(one)) is not None
