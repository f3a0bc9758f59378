"""The same program for loops whose variables hold nothing but arrays and numbers: a few comparisons a step.

Whatever does not fit (two names for one array, a view that is written into, an object) takes the long
way round, in ``SourceProgram``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from ..tree import kind_of
from .graph import FIXED, NEW
from .guard import same_mark
from .opening import Given, Opening
from .program import QUIET, Leaves, SourceProgram, nothing_runs
from .rewrite import RAISED, RETURNED


class LeanProgram(SourceProgram):
    """A loop without objects."""

    def __init__(self, *args: Any) -> None:
        self._tokens: dict[int, tuple[int | None, ...]] = {}
        """The shapes that are nothing but leaves, by number."""
        self._shape: list[int | None] = [-2]
        self._shape_number = -1
        super().__init__(*args)

    def _number(self, shape: Any) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = super()._number(shape)
            if not shape[1] and all(type(one) is not tuple for one in shape[0]):
                self._tokens[number] = shape[0]
        return number

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        if start == 0 and stop > 1:
            state[:] = super().advance(state, consts, 0, 1)
            start = 1
        while self.net.live and start < stop - 1 and stop > self.reached:
            stepped = self._lean(state, consts, start, start + 1, self.sinks)
            if stepped is None:
                return super().advance(state, consts, start, stop)
            state[:], start = stepped[1], start + 1
        stepped = self._lean(state, consts, start, stop, self.sinks) if 0 < start < stop else None
        return super().advance(state, consts, start, stop) if stepped is None else stepped[1]

    def full(self, state: Leaves, consts: Leaves, step: int) -> Any:
        emits: list[Any] = [[] for _ in self.sinks]
        stepped = self._lean(state, consts, step, step + 1, emits) if step else None
        return super().full(state, consts, step) if stepped is None else stepped

    def _lean(self, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]) -> Any:
        """Steps ``start … stop-1``; ``None`` if they need the long way, and then nothing has happened."""
        if not self.over or self.net.idle:
            return self._taken(state, consts, start, stop, emits)
        with self.net.as_before():
            found = self._taken(state, consts, start, stop, emits)
            self._check_replayed()
            return found

    def _taken(self, state: Leaves, consts: Leaves, start: int, stop: int, emits: list[Any]) -> Any:
        number = state[0]
        given, tokens = self.given, self._tokens.get(number)
        if given is None or tokens is None:
            return None
        values, watched = state[1 : self.count + 1], []
        mark, traced = self.framework.mark, self.traced
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
                if self.copied[place] and not one.flags.writeable:
                    token = tokens[place]
                    if token == NEW or token in self.written:
                        values[place] = kind_of(one).copy(one)
            elif cls in traced:
                if self.framework.level(one) <= self.level:
                    one = values[place] = self.framework.share(one)
                array = self.framework.plain(one)
                if type(array) is ndarray:
                    if array.base is not None or self.framework.root(one) is not one:
                        return None
                    if tokens[place] != NEW or self.emits_state:
                        watched.append((place, one, mark(one)))
            elif cls not in FIXED:
                return None
        state.clear()
        self._call = lambda: self._general(values, tokens, consts, given, fresh)
        quiet, around = stop <= self.reached, QUIET.net
        QUIET.depth += quiet
        QUIET.steps += 1
        QUIET.net = self.net
        try:
            flag, value, new, outs = self.function(self.items.take((), start, stop), *values, *arguments, *emits)
        finally:
            QUIET.depth -= quiet
            QUIET.steps -= 1
            QUIET.net = around
            self._call = nothing_runs
        if flag == RAISED:
            self._raised(value, *self._general(values, tokens, consts, given, fresh))
        for at, (place, one, before) in enumerate(watched):
            if mark(one) is not before and not same_mark(mark(one), before):
                self._written_into(one, place, tokens if at >= borders else None)
        if stop > self.reached:
            if self.net.live:
                self._check_kept(given if given.leaves is consts else None, True)
                self._check_memos([*values, *arguments], None)
            self.reached = stop
        if flag in (RETURNED, RAISED):
            outs = (*outs, value)
        if not outs and not emits and self._is_alike(new, tokens, arguments):
            self.agreed.state(stop, number)
            self.out_shapes = ()
            return flag, [number, *new, *self.pads], (), ()
        closed = self._closed_lean(new, outs, emits, values, tokens, arguments, start, stop)
        if closed is not None:
            return flag, *closed
        return flag, *self._closed(
            *self._general(values, tokens, consts, given, fresh), list(new), outs, emits, start, stop
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
            array = one if cls is ndarray else self.framework.plain(one) if cls in self.traced else None
            if type(array) is not ndarray or (self.mutates and not self._kind(one)):
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
            if any(token in self.written and token not in shape for token in tokens if token is not None):
                return None
        for one in outs:
            if type(one) not in FIXED:
                return None
        emitted: Leaves = []
        if emits and emits is not self.sinks:
            if any(token not in (None, NEW) for token in shape):
                return None
            views = any(kind is not None and self._is_view(one) for kind, one in zip(shape, new))
            if not self._emit(emits, known, views, arguments, emitted, step):
                return None
        self.out_shapes = (None,) * len(outs)
        if shape != self._shape:
            self._shape, self._shape_number = shape, self._number((tuple(shape), ()))
        number = self._shape_number
        self.agreed.state(stop, number)
        if outs:
            self.agreed.outs(stop, self.out_shapes)
        return [number, *new, *self.pads], outs, emitted

    def _emit(
        self, emits: list[Any], known: dict[int, int], views: bool, arguments: Sequence[Any], emitted: Leaves, step: int
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
                if kind and (views or self._is_view(one)):
                    return False
                if kind and id(one) in known:
                    if self.copied[known[id(one)]]:
                        return False
                    shared.add(len(emitted))
                shape.append(NEW if kind else None)
                emitted.append(one)
            shapes.append(shape)
        self.agreed.emitted(step, self.emit_shapes, shapes)
        if step == len(self.emit_shapes):
            self.emit_shapes.append(shapes)
            self.aliased.append(shared)
            for place in shared:
                self.emits_state = True
                if type(emitted[place]) is ndarray:
                    self.hold(emitted[place])
        return True

    def _kind(self, one: Any) -> bool | None:
        """True for an array, false for a number, ``None`` for what needs the long way."""
        cls = type(one)
        if cls in FIXED:
            return False
        if cls is ndarray:
            return None if self.mutates and one.base is not None else True
        if cls in self.traced:
            array = self.framework.plain(one)
            if type(array) is ndarray:
                view = array.base is not None or self.framework.root(one) is not one
                return None if self.mutates and view else True
            return False
        return None

    def _all_new(self, tokens: tuple[int | None, ...]) -> bool:
        return all(not (token is not None and token != NEW) for token in tokens)

    def _written_into(self, one: Any, place: int, tokens: tuple[int | None, ...] | None) -> None:
        """A traced array was written into; ``tokens`` are given if it is one of the state."""
        if tokens is None:
            name = self.entry.const_owner(place)
            raise self._again(self._words(name), [name], [name])
        token = tokens[place]
        if token is not None and token != NEW and token not in self.written:
            raise self._again(self._words(self.entry.owners[token]), [self.entry.owners[token]])
        if self.emits_state:
            self._refuse_views(one)

    def _general(
        self, values: list[Any], tokens: tuple[int | None, ...], consts: Leaves, given: Given, fresh: bool
    ) -> tuple[Opening, Given]:
        """What the long way knows of the objects of a call."""
        opening = Opening(self, (), (), taken=())
        opening.note(values, tokens)
        return opening, Given(self, consts) if fresh else given
