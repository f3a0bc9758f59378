"""A loop of a transformed function as a program on flat leaves.

A state is the number of a shape, then the leaves, then ``None`` up to a fixed width. Steps between two
snapshots run inside the loop's own function on real objects, made anew from the leaves; what they
are afterwards is taken apart again. Where every name holds an array or a number, that costs a few
comparisons.

What the code before the run could not know is found out while it runs, and begins the run anew with
that knowledge (``Again``): an array that a function writes into, a state that has grown, an exception.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from traceback import clear_frames
from typing import Any

from numpy import ndarray

from ..engine.numpy.hold import hold, release
from ..errors import PebblingError, SourceError
from ..loops.frameworks import Framework
from .agreed import Agreed
from .containers import container_of
from .entry import SOURCES, Entry
from .escape import check_escape, codes_in
from .facts import Facts
from .graph import SIMPLE, Shape, Taken, is_fixed, shared
from .opening import Given, Opening
from .rewrite import RAISED, RETURNED
from .suspects import suspects

Leaves = list[Any]
_BASE_ALONE = 2  # references to the memory of a view that nobody else looks into


class Again(SourceError):
    """The run has to begin anew, knowing more; if it can't, this is the error."""

    def __init__(
        self, message: str, names: Iterable[str] = (), consts: Iterable[str] = (), width: int = 0, stops: bool = False
    ) -> None:
        super().__init__(message)
        self.names, self.consts, self.width, self.stops = set(names), set(consts), width, stops


class Quiet(threading.local):
    """Whether steps run that have run before, and so print nothing; and how many steps are running."""

    depth = 0
    steps = 0


QUIET = Quiet()


def running() -> bool:
    """Whether a step of a loop under a derivative is running."""
    return QUIET.steps > 0


class Sink:
    """A list of which nobody wants to know what it collects."""

    def append(self, value: Any) -> None:
        """Forget it."""

    def extend(self, values: Any) -> None:
        """Forget them."""


class SourceProgram:
    """One loop, from one entry."""

    def __init__(
        self,
        facts: Facts,
        function: Callable[..., Any],
        framework: Framework,
        items: Any,
        entry: Entry,
        width: int,
        stops: bool,
    ) -> None:
        self._held: dict[int, Any] = {}
        self.facts, self.function, self.framework, self.items, self.entry = facts, function, framework, items, entry
        self.level = max(map(framework.level, [*entry.leaves, *entry.given.leaves]))
        self.length: int | None = None if stops else items.length
        self.rich = bool(self.length is None or facts.outs or facts.emits or facts.prints)
        paths = set(facts.written) | facts.promoted_paths
        self.written = entry.written_tokens(paths)
        names = {path[0] for path in paths}
        extra = len(entry.shapes) - len(entry.names)
        self.copied = [name in names for name in [*entry.names, *[SOURCES] * extra]]
        entry.check_views(self.written, framework)
        self.mutates = any(self.copied)
        self.count = len(facts.state)
        self.shapes: list[tuple[tuple[Shape, ...], tuple[Shape, ...]]] = []
        self._numbers: dict[Any, int] = {}
        self.width = max(width, entry.most)
        self.traced = {type(leaf) for leaf in [*entry.leaves, *entry.given.leaves] if framework.level(leaf)}
        self.pads = [None] * (self.width - len(entry.shapes))
        self.first = [self._number((entry.shapes, ())), *self._padded(entry.leaves)]
        self.reached = 0
        self.out_shapes: tuple[Shape, ...] = ()
        self.agreed = Agreed(facts)
        self.emit_shapes: list[list[list[Shape]]] = []
        self.aliased: list[set[int]] = []
        self.emits_state = False
        self.given: Given | None = None
        self._codes = codes_in(function.__code__) if facts.captures else set()
        self._order = {name: entry.first_const + place for place, name in enumerate(entry.fixed)}
        self.sinks = [Sink() for _ in facts.emits]

    # What a driver asks of a program.

    def goes_on(self, state: Leaves, step: int) -> bool:
        return bool(self.items.ready(step))

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        new = list(state)
        state.clear()
        while start < stop:
            # The first time one by one, to see how large states become and whether one is refused.
            end = min(start + 1, stop) if start >= self.reached else stop
            new = self._steps(new, consts, start, end, self.sinks)[1]
            start = end
        return new

    def full(self, state: Leaves, consts: Leaves, step: int) -> tuple[Any, Leaves, Sequence[Any], Sequence[Any]]:
        return self._steps(list(state), consts, step, step + 1, [[] for _ in self.facts.emits])

    def where(self) -> str:
        return self.facts.where

    def functions(self) -> list[Callable[..., Any]]:
        return [self.function]

    def names(self, count: int) -> list[str]:
        shapes = zip([*self.entry.names, *[SOURCES] * count], self.shapes[0][0])
        found = ["the structure of the state", *[path for name, shape in shapes for path in _paths(shape, name)]]
        return [*found, *[f"a value of {self.facts.text}"] * (count - len(found))][:count]

    def hold(self, array: ndarray) -> None:
        """Lock an array that was there before the loop, until the derivative is done."""
        hold(self._held, array)

    def close(self) -> None:
        """Let go of all arrays."""
        release(self._held)

    def __del__(self) -> None:
        if self._held:
            release(self._held)

    # One call of the loop's function.

    def _steps(self, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]) -> Any:
        given = self.given
        if given is None or given.leaves is not consts:
            given = Given(self, consts)
            # Those of a step with a tape are of no use to any other.
            self.given = None if given.fresh else given
        shapes, lost = self.shapes[state[0]]
        opening = Opening(self, state[1:], given.objects, initial=start == 0, taken=given.known)
        state.clear()
        roots = opening.open(shapes, lost)
        marks = self.marks(opening.objects)
        count, entry = self.count, self.entry
        carried = dict(zip(entry.carried, roots[count:]))
        args = [carried[name] if name in carried else given.values[self._order[name]] for name in self.facts.consts]
        args += [carried.get(name, emit) for name, emit in zip(self.facts.emits, emits)]
        extra = roots[count:]
        sources = (
            extra[len(entry.carried) :]
            if entry.sources_carried
            else given.values[entry.first_const + len(self._order) :]
        )
        quiet = stop <= self.reached
        QUIET.depth += quiet
        QUIET.steps += 1
        try:
            results = self.function(self.items.take(sources, start, stop), *roots[:count], *args)
        finally:
            QUIET.depth -= quiet
            QUIET.steps -= 1
        flag, value, new, outs = results
        if flag == RAISED:
            self._raised(value, opening, given)
        self._check_marks(given, opening, marks)
        self.reached = max(self.reached, stop)
        roots = [*new, *extra]
        if flag in (RETURNED, RAISED):
            outs = (*outs, value)
        return flag, *self._closed(opening, given, roots, outs, emits, start, stop)

    def _closed(
        self, opening: Opening, given: Given, roots: list[Any], outs: list[Any], emits: list[Any], step: int, stop: int
    ) -> tuple[Leaves, Sequence[Any], Sequence[Any]]:
        taken = Taken(opening.known(given))
        shapes: list[Shape] = []
        written: list[bool] = []
        for value, copied in zip(roots, self.copied):
            shapes.append(taken.take(value))
            written += [copied] * (len(taken.objects) - len(written))
        lost = tuple([taken.take(one) for one in opening.pinned() if not taken.met(one)])
        written += [True] * (len(taken.objects) - len(written))
        size = len(taken.leaves)
        self.out_shapes = tuple([taken.take(value) for value in outs])
        self._check_new(taken)
        if size > self.width:
            raise Again(
                f"{self.facts.where}: the state of the loop grows from {self.width} to {size} values", width=2 * size
            )
        leaves = taken.leaves
        if self.mutates:
            self._check_views(taken.objects[: len(written)], written, given, opening)
        number = self._number((tuple(shapes), lost))
        self.agreed.state(stop, number)
        self.agreed.outs(stop, self.out_shapes)
        state = [number, *self._padded(leaves[:size])]
        self._note_traced(leaves)
        emitted: Sequence[Any] = ()
        if emits and type(emits[0]) is list:
            emitted = self._emitted(emits, taken, written, given, opening, step)
        return state, leaves[size:], emitted

    def _emitted(
        self, emits: list[Any], state: Taken, written: list[bool], given: Given, opening: Opening, step: int
    ) -> Leaves:
        """What a step has appended to lists; shapes and shared objects are noted the first time."""
        taken = Taken(opening.known(given), apart=True)
        shapes = [[taken.take(value) for value in values] for values in emits]
        self._check_new(taken)
        self.agreed.emitted(step, self.emit_shapes, shapes)
        if step == len(self.emit_shapes):
            self.emit_shapes.append(shapes)
            count = Counter(map(id, taken.leaves))
            twice = {place for place, one in enumerate(taken.leaves) if _is_kept(one) and count[id(one)] > 1}
            in_state = {place: self._seen_through(one, state.objects) for place, one in enumerate(taken.leaves)}
            in_state = {place: seen for place, seen in in_state.items() if seen}
            self.aliased.append(in_state.keys() | twice)
            changing = {id(one) for one, copied in zip(state.objects, written) if copied}
            for place, seen in in_state.items():
                for leaf in (taken.leaves[place], *seen):
                    if type(leaf) is ndarray:
                        self.hold(leaf)
                self.emits_state = True
                if any(id(one) in changing for one in seen):
                    raise SourceError(
                        f"{self.facts.where}: an array is appended to a list and written into later on, which would "
                        "change what was appended: append a copy (.copy())"
                    )
        return taken.leaves

    def _seen_through(self, one: Any, objects: Sequence[Any]) -> list[Any]:
        """The arrays among some objects that change if one is written into: itself, and those with the same memory."""
        if not _is_leaf(one) or not _is_kept(one):
            return []
        view = self._is_view(one)
        return [
            two for two in objects if two is one or ((view or self._is_view(two)) and shared(self.framework, one, two))
        ]

    def _note_traced(self, leaves: Leaves) -> None:
        for leaf in leaves:
            if type(leaf) not in SIMPLE and self.framework.level(leaf):
                self.traced.add(type(leaf))

    def _padded(self, leaves: Leaves) -> Leaves:
        return [*leaves, *[None] * (self.width - len(leaves))]

    def _number(self, shape: Any) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
        return number

    # What a step must not have done.

    def marks(self, objects: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        """How traced arrays stand before a step, to see afterwards whether it wrote into them."""
        mark = self.framework.mark
        return [
            (place, one, mark(one))
            for place, one in enumerate(objects)
            if type(one) not in SIMPLE and self.framework.level(one)
        ]

    def _check_marks(self, given: Given, opening: Opening, marks: list[tuple[int, Any, Any]]) -> None:
        mark = self.framework.mark
        for place, one, before in given.marks:
            if not same_mark(mark(one), before):
                name = self.entry.const_owner(place)
                raise Again(self._words(name), [name], [name])
        for place, one, before in marks:
            token = opening.tokens[place]
            if not same_mark(mark(one), before):
                if token >= 0 and token not in self.written:
                    raise Again(self._words(self.entry.owners[token]), [self.entry.owners[token]])
                if self.emits_state or opening.shares(one, given):
                    self._refuse_views(one)

    def _words(self, name: str) -> str:
        return f"{self.facts.where}: a function that the loop calls writes into {name}"

    def _raised(self, error: Exception, opening: Opening, given: Given) -> None:
        if isinstance(error, ValueError) and "read-only" in str(error):
            self._locked(error, opening, given)
        if isinstance(error, PebblingError):
            raise error
        if self.length is not None:
            message = f"{self.facts.where}: the loop ended with {error!r}"
            clear_frames(error.__traceback__)
            error.__traceback__ = None
            raise Again(message, stops=True)

    def _locked(self, error: ValueError, opening: Opening, given: Given) -> None:
        """An array was written into that is held: find the names that reach it, and no more of them than necessary."""
        guesses = list(suspects(error.__traceback__))
        clear_frames(error.__traceback__)
        error.__traceback__ = None  # it holds the frames of this run, which is over
        known = {name for name, copied in zip([*self.entry.names, SOURCES], self.copied) if copied}
        for touched in guesses:
            names = {name for name, objects in opening.by_root() if any(self._touches(one, touched) for one in objects)}
            consts = {
                self.entry.const_owner(place) for place, one in enumerate(given.objects) if self._touches(one, touched)
            }
            if fresh := (names | consts) - known:
                raise Again(self._words(", ".join(sorted(fresh))), fresh, consts)
        raise SourceError(
            f"{self.facts.where}: the loop writes into an array that is needed as it is ({error}): write "
            "into a copy of it "
            "(x = x.copy())"
        )

    def _touches(self, one: Any, touched: set[int]) -> bool:
        array = self.framework.plain(one) if _is_leaf(one) else None
        return isinstance(array, ndarray) and (id(array) in touched or id(array.base) in touched)

    def _check_views(self, objects: Sequence[Any], written: list[bool], given: Given, opening: Opening) -> None:
        """Refuse arrays between two steps that share memory without being one, where one may be written into."""
        views = [self._is_view(one) for one in objects]
        if not any(views):
            return
        for one, view, changing in zip(objects, views, written):
            if changing and view and type(one) is ndarray and self._is_foreign(one, opening):
                self._refuse_views(one)
            others = [
                two for two, other, also in zip(objects, views, written) if (view or other) and (changing or also)
            ]
            if any(shared(self.framework, one, two) for two in [*others, *(given.objects if changing else ())]):
                self._refuse_views(one)

    def _is_view(self, one: Any) -> bool:
        if type(one) is ndarray:
            return one.base is not None
        if not _is_leaf(one):
            return False
        return self.framework.root(one) is not one or getattr(self.framework.plain(one), "base", None) is not None

    def _is_foreign(self, array: ndarray, opening: Opening) -> bool:
        base: Any = array.base
        if type(base) is not ndarray or any(one is base for one in opening.objects):
            return False
        return getrefcount(base) > _BASE_ALONE + 1  # one for the name here

    def _refuse_views(self, one: Any) -> None:
        shape = getattr(one, "shape", "")
        raise SourceError(
            f"{self.facts.where}: between two steps, an array of shape {shape} is a view of another one "
            "that is still in "
            "use, and the loop writes into arrays: make it a copy (.copy())"
        )

    def _check_new(self, taken: Taken) -> None:
        if self.facts.captures:
            check_escape(self.facts, [*taken.objects, *taken.leaves], self._codes)


def same_mark(one: Any, two: Any) -> bool:
    """Whether two marks of one leaf say that nobody has written into it."""
    return one is two or (type(one) is int and one == two)


def _is_kept(one: Any) -> bool:
    return type(one) is ndarray or not is_fixed(one)


def _is_leaf(one: Any) -> bool:
    return container_of(type(one)) is None


def _paths(shape: Shape, root: str) -> list[str]:
    if type(shape) is not tuple:
        return [root]
    if len(shape) == 2:
        return []
    cls, _, rest, children = shape
    if issubclass(cls, dict):
        keys: list[str] = [f"[{key!r}]" for key in rest[-len(children) :]] if children else []
    elif type(rest) is tuple and all(type(name) is str for name in rest):
        keys = [f".{name}" for name in rest]
    else:
        keys = [f"[{place}]" for place in range(len(children))]
    return [path for key, child in zip(keys, children) for path in _paths(child, root + key)]
