"""A loop of a transformed function as a program on flat leaves.

    s = Box(); s.x, s.t = u, 0.0
    for i in range(n):
        s.x = s.x + 0.1 * np.cos(s.t) * s.x
        s.t += 0.1

The names of this loop reach one object with two leaves, so a state is ``[0, array, 0.1]``: the number of a shape
(``graph.py``: a Box with ``x`` and ``t``), then the leaves, then ``None`` up to a fixed width. For a step,
``opening.py`` puts the leaves into the user's own Box, the loop's function runs, and ``graph.Taken`` takes the Box
apart again.

Three parts do the work: ``Guard`` looks at every step from outside, ``FastPath`` runs loops whose names hold nothing
but arrays and numbers, and this file takes the long way, which is always right.

What the code before the run could not know is found out while it runs, and begins the run anew with
that knowledge (``Again``): an array that a function writes into, a state that has grown, an exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from numpy import ndarray

from ..engine.numpy.hold import hold, release
from ..errors import SourceError
from ..loops.frameworks import Framework
from .agreed import Agreed
from .containers import container_of, of_class
from .entry import Entry, copying
from .facts import Facts
from .fast_path import FastPath
from .graph import SIMPLE, Shape, Taken, is_fixed, shared
from .guard import Guard, is_leaf
from .net import Net
from .opening import Given, Opening
from .rewrite import RAISED, RETURNED
from .running import QUIET, nothing_runs
from .suspects import frames_above

Leaves = list[Any]


class Sink:
    """A list of which nobody wants to know what it collects."""

    def append(self, value: Any) -> None:
        """Forget it."""

    def extend(self, values: Any) -> None:
        """Forget them."""


class SourceProgram:
    """One loop, from one entry."""

    varies = True
    """Its state may hold other things in one step than in the next."""

    def __init__(
        self,
        facts: Facts,
        function: Callable[..., Any],
        framework: Framework,
        items: Any,
        entry: Entry,
        width: int,
        stops: bool,
        net: Net,
    ) -> None:
        self.net, self.sweeping = net, False
        self.held_now: dict[int, Any] = {}
        """Arrays that are locked while the step runs."""
        self._held: dict[int, Any] = {}
        self.facts, self.function, self.framework, self.items, self.entry = facts, function, framework, items, entry
        self.level = max(map(framework.level, [*entry.leaves, *entry.given.leaves]))
        self.length: int | None = None if stops else items.length
        self.rich = bool(self.length is None or facts.outs or facts.emits or facts.prints)
        self.guard = Guard(facts, function, framework, entry, net, self.length is None)
        self.call: Callable[[], tuple[Opening, Given]] = nothing_runs
        """The objects of the call that is running."""
        self._containers = [
            (one, container)
            for one in entry.originals
            if (container := container_of(type(one))) is not None and container.mutable
        ]
        self.mutates = any(self.guard.copied)
        self.count = len(facts.state)
        self.shapes: list[tuple[tuple[Shape, ...], tuple[Shape, ...]]] = []
        self._numbers: dict[Any, int] = {}
        self.width = max(width, entry.most)
        self.traced = {type(leaf) for leaf in [*entry.leaves, *entry.given.leaves] if framework.level(leaf)}
        self.pads = [None] * (self.width - len(entry.shapes))
        self.first = [self.number_of((entry.shapes, ())), *self._padded(entry.leaves)]
        self.reached = 0
        self.out_shapes: tuple[Shape, ...] = ()
        self.agreed = Agreed(facts)
        self.emit_shapes: list[list[list[Shape]]] = []
        self.aliased: list[set[int]] = []
        self.given: Given | None = None
        self._order = {name: entry.first_const + place for place, name in enumerate(entry.fixed)}
        self.sinks = [Sink() for _ in facts.emits]
        lean = entry.is_simple and not facts.captures and framework.execute is None
        self._fast = FastPath(self) if lean else None

    # What a driver asks of a program.

    def goes_on(self, state: Leaves, step: int) -> bool:
        return bool(self.items.ready(step))

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        """The state after steps ``start … stop-1``; ``state`` is emptied."""
        if self._fast is None:
            return self.walk(state, consts, start, stop)
        return self._fast.advance(self, state, consts, start, stop)

    def full(self, state: Leaves, consts: Leaves, step: int) -> tuple[Any, Leaves, Sequence[Any], Sequence[Any]]:
        """One step, with all that it gives: how it ended, the state, what the loop leaves behind, what it collects."""
        emits: list[Any] = [[] for _ in self.facts.emits]
        found: Any = None if self._fast is None else self._fast.full(self, state, consts, step, emits)
        return self._steps(list(state), consts, step, step + 1, emits) if found is None else found

    def walk(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        """``advance`` the long way round, which is always right."""
        new = list(state)
        state.clear()
        while start < stop:
            # The first time one by one, to see how large states become and whether one is refused. An array that can't
            # be locked is new in every step that may write into it: loops inside may have saved the one before.
            single = start >= self.reached or (self.mutates and self.framework.execute is not None)
            end = min(start + 1, stop) if single else stop
            new = self._steps(new, consts, start, end, self.sinks)[1]
            start = end
        return new

    def where(self) -> str:
        return self.facts.where

    def functions(self) -> list[Callable[..., Any]]:
        return [self.function]

    def may_catch(self) -> bool:
        return self.net.catches

    def written_into(self, error: ValueError, frame: FrameType) -> Exception:
        return self.guard.locked(error, frames_above(frame), *self.call())

    def owned(self) -> list[Any]:
        """Arrays of a framework in the initial state that are copies, because the loop writes into them."""
        theirs = {id(one) for one in self.entry.originals}
        return [leaf for leaf in self.first if self.framework.array(leaf) and id(leaf) not in theirs]

    def names(self, count: int) -> list[str]:
        shapes = zip(self.entry.roots, self.shapes[0][0])
        found = ["the structure of the state", *[path for name, shape in shapes for path in paths_of(shape, name)]]
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
        """Steps ``start … stop-1``; the user's own objects are what they were when they are over."""
        self.sweeping = stop > self.reached and not self.guard.over
        contents = [(one, type(one), container, *container.parts(one)) for one, container in self._containers]
        contents = [(one, cls, container, list(children), rest) for one, cls, container, children, rest in contents]
        spots = [(spot, spot.get()) for spot in self.entry.spots]
        around, QUIET.net = QUIET.net, self.net
        try:
            if not self.guard.over:
                return self._on_objects(state, consts, start, stop, emits)
            with self.net.as_before():
                found = self._on_objects(state, consts, start, stop, emits)
                self.guard.check_replayed()
                return found
        finally:
            QUIET.net = around
            release(self.held_now)
            for spot, content in spots:
                spot.put(content)
            for one, cls, container, children, rest in contents:
                container.fill(of_class(one, cls), rest, children)

    def _on_objects(self, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]) -> Any:
        given = self.given
        if start == 0 or given is None or given.leaves is not consts:
            given = Given(self, consts, start == 0)
            # Those of a step with a tape are of no use to any other.
            self.given = None if given.fresh or given.is_trial else given
        shapes, lost = self.shapes[state[0]]
        opening = Opening(self, state[1:], given.objects, initial=start == 0, taken=given.known)
        state.clear()
        roots = opening.open(shapes, lost)
        marks = self.guard.marks(opening.objects)
        count, entry = self.count, self.entry
        carried = dict(zip(entry.carried, roots[count:]))
        args = [carried[name] if name in carried else given.values[self._order[name]] for name in self.facts.consts]
        args += [carried.get(name, emit) for name, emit in zip(self.facts.emits, emits)]
        extra = roots[count : len(roots) - len(entry.spots)]
        for spot, content in zip(entry.spots, roots[len(roots) - len(entry.spots) :]):
            spot.put(content)
        sources = (
            extra[len(entry.carried) :]
            if entry.sources_carried
            else given.values[entry.first_const + len(self._order) :]
        )
        self.call = lambda: (opening, given)
        quiet = stop <= self.reached
        QUIET.depth += quiet
        QUIET.steps += 1
        try:
            results = self.function(self.items.take(sources, start, stop), *roots[:count], *args)
        finally:
            QUIET.depth -= quiet
            QUIET.steps -= 1
            self.call = nothing_runs
        flag, value, new, outs = results
        if flag == RAISED:
            self.guard.check_intact(given, opening, marks)
            self.guard.raised(value, opening, given)
        self.guard.check_marks(given, opening, marks)
        self.guard.check_kept(given, stop > self.reached)
        if stop > self.reached and self.net.memos.memos:
            self.guard.check_memos(opening.objects, given)
        self.reached = max(self.reached, stop)
        roots = [*new, *extra, *[spot.get() for spot in entry.spots]]
        if flag in (RETURNED, RAISED):
            outs = (*outs, value)
        return flag, *self.closed(opening, given, roots, outs, emits, start, stop)

    def closed(
        self, opening: Opening, given: Given, roots: list[Any], outs: list[Any], emits: list[Any], step: int, stop: int
    ) -> tuple[Leaves, Sequence[Any], Sequence[Any]]:
        taken = Taken(opening.known(given))
        shapes: list[Shape] = []
        written: list[bool] = []
        for value, copied in zip(roots, self.guard.copied):
            shapes.append(taken.take(value))
            written += [copied] * (len(taken.objects) - len(written))
        lost = tuple([taken.take(one) for one in opening.pinned() if not taken.met(one)])
        written += [True] * (len(taken.objects) - len(written))
        size = len(taken.leaves)
        self.out_shapes = tuple([taken.take(value) for value in outs])
        self.guard.check_new(taken, given)
        if size > self.width:
            raise self.guard.again(
                f"{self.facts.where}: the state of the loop grows from {self.width} to {size} values", width=2 * size
            )
        leaves = taken.leaves
        if step == 0:
            self.guard.check_trial(taken.objects, given, opening)
        if self.mutates:
            self.guard.check_views(taken.objects[: len(written)], written, given, opening)
        count = len(self.shapes)
        number = self.number_of((tuple(shapes), lost))
        if number == count:
            self.guard.check_keys(shapes, given)
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
        self.guard.check_new(taken, given)
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
                self.guard.emits_state = True
                if any(id(one) in changing for one in seen):
                    raise SourceError(
                        f"{self.facts.where}: an array is appended to a list and written into later on, which would "
                        f"change what was appended: append a copy ({copying(self.framework)})"
                    )
        return taken.leaves

    def _seen_through(self, one: Any, objects: Sequence[Any]) -> list[Any]:
        """The arrays among some objects that change if one is written into: itself, and those with the same memory."""
        if not is_leaf(one) or not _is_kept(one):
            return []
        view = self.guard.is_view(one)
        return [
            two
            for two in objects
            if two is one or ((view or self.guard.is_view(two)) and shared(self.framework, one, two))
        ]

    def _note_traced(self, leaves: Leaves) -> None:
        for leaf in leaves:
            if type(leaf) not in SIMPLE and self.framework.level(leaf):
                self.traced.add(type(leaf))

    def _padded(self, leaves: Leaves) -> Leaves:
        return [*leaves, *[None] * (self.width - len(leaves))]

    def number_of(self, shape: Any) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
        return number


def _is_kept(one: Any) -> bool:
    return type(one) is ndarray or not is_fixed(one)


def paths_of(shape: Shape, root: str) -> list[str]:
    """What each leaf of a shape is called in Python, its root being a name."""
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
    return [path for key, child in zip(keys, children) for path in paths_of(child, root + key)]
