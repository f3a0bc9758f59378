"""The same program for loops whose variables hold nothing but arrays and numbers: a few comparisons a step.

Whatever does not fit (two names for one array, a view that is written into, an object) takes the long
way round, in ``SourceProgram``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ..tree import kind_of
from .graph import FIXED, NEW
from .guard import same_mark
from .opening import Given, Opening
from .rewrite import RAISED, RETURNED
from .running import QUIET, nothing_runs

if TYPE_CHECKING:
    from .program import Leaves, SourceProgram


class FastPath:
    """Runs the steps of a loop without objects, for the program that it belongs to."""

    def __init__(self, program: SourceProgram) -> None:
        self.guard, self._framework = program.guard, program.framework
        self._function, self._items, self._count = program.function, program.items, program.count
        self._level, self._traced, self._mutates = program.level, program.traced, program.mutates
        self._tokens: dict[int, tuple[int | None, ...] | None] = {}
        """The shapes that are nothing but leaves, by number; ``None`` for others."""
        self._shape: list[int | None] = [-2]
        self._shape_number = -1

    def _tokens_of(self, program: SourceProgram, number: int) -> tuple[int | None, ...] | None:
        try:
            return self._tokens[number]
        except KeyError:
            shapes, lost = program.shapes[number]
            leaves = not lost and all(type(one) is not tuple for one in shapes)
            found = self._tokens[number] = shapes if leaves else None
            return found

    def advance(self, program: SourceProgram, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        if start == 0 and stop > 1:
            state[:] = program.walk(state, consts, 0, 1)
            start = 1
        while program.net.live and start < stop - 1 and stop > program.reached:
            stepped = self._lean(program, state, consts, start, start + 1, program.sinks)
            if stepped is None:
                return program.walk(state, consts, start, stop)
            state[:], start = stepped[1], start + 1
        stepped = self._lean(program, state, consts, start, stop, program.sinks) if 0 < start < stop else None
        return program.walk(state, consts, start, stop) if stepped is None else stepped[1]

    def full(self, program: SourceProgram, state: Leaves, consts: Leaves, step: int, emits: list[Any]) -> Any:
        """One step with all that it gives; ``None`` if it needs the long way."""
        return self._lean(program, state, consts, step, step + 1, emits) if step else None

    def _lean(
        self, program: SourceProgram, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]
    ) -> Any:
        """Steps ``start … stop-1``; ``None`` if they need the long way, and then nothing has happened."""
        if not self.guard.over or program.net.idle:
            return self._taken(program, state, consts, start, stop, emits)
        with program.net.as_before():
            found = self._taken(program, state, consts, start, stop, emits)
            self.guard.check_replayed()
            return found

    def _taken(
        self, program: SourceProgram, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]
    ) -> Any:
        number = state[0]
        given, tokens = program.given, self._tokens_of(program, number)
        if given is None or tokens is None:
            return None
        values, watched = state[1 : self._count + 1], []
        mark, traced = self._framework.mark, self._traced
        if given.leaves is consts:
            arguments, fresh = given.values, False
            watched += given.marks
        else:
            arguments, fresh = consts, True
            for place, one in enumerate(consts):
                if type(one) in traced:
                    watched.append((place, one, mark(one)))
        borders = len(watched)
        for place, one in enumerate(values):
            cls = type(one)
            if cls is ndarray:
                if self.guard.copied[place] and not one.flags.writeable:
                    token = tokens[place]
                    if token == NEW or token in self.guard.written:
                        values[place] = kind_of(one).copy(one)
            elif cls in traced:
                if self._framework.level(one) <= self._level:
                    one = values[place] = self._framework.share(one)
                array = self._framework.plain(one)
                if type(array) is ndarray:
                    if array.base is not None or self._framework.root(one) is not one:
                        return None
                    if tokens[place] != NEW or self.guard.emits_state:
                        watched.append((place, one, mark(one)))
            elif cls not in FIXED:
                return None
        state.clear()
        program.call = lambda: self._general(program, values, tokens, consts, given, fresh)
        quiet, around = stop <= program.reached, QUIET.net
        QUIET.depth += quiet
        QUIET.steps += 1
        QUIET.net = program.net
        try:
            flag, value, new, outs = self._function(self._items.take((), start, stop), *values, *arguments, *emits)
        finally:
            QUIET.depth -= quiet
            QUIET.steps -= 1
            QUIET.net = around
            program.call = nothing_runs
        if flag == RAISED:
            self.guard.raised(value, *self._general(program, values, tokens, consts, given, fresh))
        for at, (place, one, before) in enumerate(watched):
            if mark(one) is not before and not same_mark(mark(one), before):
                self._written_into(program, one, place, tokens if at >= borders else None)
        if stop > program.reached:
            if program.net.live:
                self.guard.check_kept(given if given.leaves is consts else None, True)
                self.guard.check_memos([*values, *arguments], None)
            program.reached = stop
        if flag in (RETURNED, RAISED):
            outs = (*outs, value)
        if not outs and not emits and self._is_alike(new, tokens, arguments):
            program.agreed.state(stop, number)
            program.out_shapes = ()
            return flag, [number, *new, *program.pads], (), ()
        closed = self._closed_lean(program, new, outs, emits, values, tokens, arguments, start, stop)
        if closed is not None:
            return flag, *closed
        return flag, *program.closed(
            *self._general(program, values, tokens, consts, given, fresh), list(new), outs, emits, start, stop
        )

    def _is_alike(self, new: Sequence[Any], tokens: tuple[int | None, ...], arguments: Sequence[Any]) -> bool:
        """Whether a state has the shape of the one before it, all of its arrays being new and different."""
        for place, (one, token) in enumerate(zip(new, tokens)):
            cls = type(one)
            if token is None:
                if cls not in FIXED:
                    return False
                continue
            if token != NEW:
                return False
            array = one if cls is ndarray else self._framework.plain(one) if cls in self._traced else None
            if type(array) is not ndarray or (self._mutates and not self._kind(one)):
                return False
            for other in arguments:
                if other is one:
                    return False
            for other in new[:place]:
                if other is one:
                    return False
        return True

    def _closed_lean(
        self,
        program: SourceProgram,
        new: Sequence[Any],
        outs: Sequence[Any],
        emits: list[Any],
        values: list[Any],
        tokens: tuple[int | None, ...],
        arguments: Sequence[Any],
        step: int,
        stop: int,
    ) -> tuple[Leaves, Sequence[Any], Sequence[Any]] | None:
        known: dict[int, int] = {}
        """Arrays of the state by their ids."""
        shape: list[int | None] = []
        for one in new:
            kind = True if type(one) is ndarray and one.base is None else self._kind(one)
            if kind is None:
                return None
            if kind:
                if id(one) in known:
                    return None
                known[id(one)] = len(shape)
            shape.append(NEW if kind else None)
        if any(id(one) in known for one in arguments):
            return None
        if not self._all_new(tokens):
            before = {id(one): token for one, token in zip(values, tokens) if token is not None}
            shape = [None if token is None else before.get(id(one), NEW) for one, token in zip(new, shape)]
            if any(token in self.guard.written and token not in shape for token in tokens if token is not None):
                return None
        for one in outs:
            if type(one) not in FIXED:
                return None
        emitted: Leaves = []
        if emits and emits is not program.sinks:
            if any(token not in (None, NEW) for token in shape):
                return None
            views = any(kind is not None and self.guard.is_view(one) for kind, one in zip(shape, new))
            if not self._emit(program, emits, known, views, arguments, emitted, step):
                return None
        program.out_shapes = (None,) * len(outs)
        if shape != self._shape:
            self._shape, self._shape_number = shape, program.number_of((tuple(shape), ()))
        number = self._shape_number
        program.agreed.state(stop, number)
        if outs:
            program.agreed.outs(stop, program.out_shapes)
        return [number, *new, *program.pads], outs, emitted

    def _emit(
        self,
        program: SourceProgram,
        emits: list[Any],
        known: dict[int, int],
        views: bool,
        arguments: Sequence[Any],
        emitted: Leaves,
        step: int,
    ) -> bool:
        """Note what a step has appended to lists; false if that needs the long way.

        ``views`` says whether one of the arrays of the state, which are ``known``, is a view.
        """
        shapes, shared = [], set()
        for values in emits:
            shape: list[int | None] = []
            for one in values:
                kind = self._kind(one)
                if kind is None or any(one is other for other in arguments) or any(one is other for other in emitted):
                    return False
                if kind and (views or self.guard.is_view(one)):
                    return False
                if kind and id(one) in known:
                    if self.guard.copied[known[id(one)]]:
                        return False
                    shared.add(len(emitted))
                shape.append(NEW if kind else None)
                emitted.append(one)
            shapes.append(shape)
        program.agreed.emitted(step, program.emit_shapes, shapes)
        if step == len(program.emit_shapes):
            program.emit_shapes.append(shapes)
            program.aliased.append(shared)
            for place in shared:
                self.guard.emits_state = True
                if type(emitted[place]) is ndarray:
                    program.hold(emitted[place])
        return True

    def _kind(self, one: Any) -> bool | None:
        """True for an array, false for a number, ``None`` for what needs the long way."""
        cls = type(one)
        if cls in FIXED:
            return False
        if cls is ndarray:
            return None if self._mutates and one.base is not None else True
        if cls in self._traced:
            array = self._framework.plain(one)
            if type(array) is ndarray:
                view = array.base is not None or self._framework.root(one) is not one
                return None if self._mutates and view else True
            return False
        return None

    def _all_new(self, tokens: tuple[int | None, ...]) -> bool:
        return all(not (token is not None and token != NEW) for token in tokens)

    def _written_into(
        self, program: SourceProgram, one: Any, place: int, tokens: tuple[int | None, ...] | None
    ) -> None:
        """A traced array was written into; ``tokens`` are given if it is one of the state."""
        if tokens is None:
            name = program.entry.const_owner(place)
            raise self.guard.again(self.guard.words(name), [name], [name])
        token = tokens[place]
        if token is not None and token != NEW and token not in self.guard.written:
            raise self.guard.again(self.guard.words(program.entry.owners[token]), [program.entry.owners[token]])
        if self.guard.emits_state:
            self.guard.refuse_views(one)

    def _general(
        self,
        program: SourceProgram,
        values: list[Any],
        tokens: tuple[int | None, ...],
        consts: Leaves,
        given: Given,
        fresh: bool,
    ) -> tuple[Opening, Given]:
        """What the long way knows of the objects of a call."""
        opening = Opening(program, (), (), taken=())
        opening.note(values, tokens)
        return opening, Given(program, consts) if fresh else given
