"""What a step must not have done: write into what is needed as it was, keep views of what is written into.

NumPy's arrays are locked while they are needed, and NumPy raises at the line that writes. Arrays of a framework can't
be; torch raises where one is a leaf that requires gradients, and counts the writes into any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from traceback import clear_frames
from types import CodeType, FrameType
from typing import Any

from numpy import ndarray

from ..errors import PebblingError, ReplayError, SourceError
from ..loops.frameworks import Framework
from ..refusal import is_locked
from ..tree.reach import Spot
from .containers import container_of
from .entry import Entry, copying, restorer
from .escape import check_escape, codes_in
from .facts import Facts
from .graph import SIMPLE, Taken, shared
from .net import Net, Owner
from .opaque import check_identities, check_leaves, keyed
from .opening import Given, Opening
from .suspects import frames_of, suspects

_IN_PLACE = "requires grad is being used in an in-place"  # what torch says of a leaf
_BASE_ALONE = 2  # references to the memory of a view that nobody else looks into


class Again(SourceError):
    """The run has to begin anew, knowing more; if it can't, this is the error."""

    def __init__(
        self,
        message: str,
        names: Iterable[str] = (),
        consts: Iterable[str] = (),
        width: int = 0,
        stops: bool = False,
        spots: Iterable[Spot] = (),
    ) -> None:
        """``names`` are written into; ``consts`` and ``spots`` have to be part of the state."""
        super().__init__(message)
        self.names, self.consts, self.width, self.stops = set(names), set(consts), width, stops
        self.spots = list(spots)
        self.maker: Any = None
        """The run that has to begin anew."""


class Guard:
    """Looks at every step of one run of a loop from outside."""

    def __init__(
        self,
        facts: Facts,
        function: Callable[..., Any],
        framework: Framework,
        entry: Entry,
        net: Net,
        may_raise: bool,
    ) -> None:
        """``may_raise``: whether the run can end with an exception of the program's; if not, it begins anew."""
        self.facts, self.framework, self.entry, self.net, self._may_raise = facts, framework, entry, net, may_raise
        self.over = False
        """Whether the first sweep is over."""
        paths = set(facts.written) | facts.promoted_paths
        self.written = entry.written_tokens(paths)
        """Tokens of the arrays that the loop writes into, as far as is known."""
        self.touched: set[int] = set()
        """Tokens of arrays of a framework that a step has written into indeed."""
        names = {path[0] for path in paths}
        self.copied = [name in names for name in entry.roots]
        """Of which names a step gets copies of what snapshots hold."""
        self.emits_state = False
        """Whether an array of the state has been appended to a list."""
        self._codes = codes_in(function.__code__) if facts.captures else set[CodeType]()
        entry.check_views(self.written, framework)

    def again(
        self,
        message: str,
        names: Iterable[str] = (),
        consts: Iterable[str] = (),
        width: int = 0,
        stops: bool = False,
        spots: Iterable[Spot] = (),
    ) -> SourceError:
        """The error that begins the run anew; once the first sweep is over, it can't any more."""
        if self.over:
            return SourceError(f"{message} when a step is replayed, and did not when it ran for the first time")
        again = Again(message, names, consts, width, stops, spots)
        again.maker = self
        return again

    def marks(self, objects: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        """How traced arrays stand before a step, to see afterwards whether it wrote into them."""
        mark, level, array = self.framework.mark, self.framework.level, self.framework.array
        return [
            (place, one, mark(one))
            for place, one in enumerate(objects)
            if type(one) not in SIMPLE and (level(one) or array(one))
        ]

    def check_intact(self, given: Given, opening: Opening, marks: list[tuple[int, Any, Any]]) -> None:
        """Refuse a write into an array from before the loop that can't be locked: the loop can't begin anew."""
        mark, array = self.framework.mark, self.framework.array
        for place, one, before in given.marks:
            if array(one) and not given.is_private(one) and not same_mark(mark(one), before):
                self._refuse_written(self.entry.const_owner(place))
        for place, one, before in marks:
            if array(one) and not opening.is_private(one) and not same_mark(mark(one), before):
                originals = self.entry.originals
                if opening.tokens[place] >= 0 or any(shared(self.framework, one, two) for two in originals):
                    self._refuse_written(self._name_of(opening, place))

    def check_marks(self, given: Given, opening: Opening, marks: list[tuple[int, Any, Any]]) -> None:
        mark = self.framework.mark
        self.check_intact(given, opening, marks)
        for place, one, before in given.marks:
            if not same_mark(mark(one), before):
                name = self.entry.const_owner(place)
                raise self.again(self.words(name), [name], [name])
        for place, one, before in marks:
            token = opening.tokens[place]
            if not same_mark(mark(one), before):
                self.touched.add(token)
                if self.framework.array(one) and not opening.is_private(one):
                    name = self._name_of(opening, place)
                    raise self.again(self.words(name), [name])
                if token >= 0 and token not in self.written:
                    raise self.again(self.words(self.entry.owners[token]), [self.entry.owners[token]])
                if self.emits_state or opening.shares(one, given):
                    self.refuse_views(one)

    def check_kept(self, given: Given | None, first: bool) -> None:
        """Begin anew, with more that is carried, where a step has changed what was not; in a replay, refuse."""
        owners: list[Owner] = [] if given is None else [self.entry.const_owner(place) for place in given.changed()]
        owners += self.net.changed() if first and self.net.live else []
        if owners:
            spots = {one.words: one for one in owners if isinstance(one, Spot)}
            names = {one for one in owners if isinstance(one, str)}
            words = f"{self.facts.where}: {', '.join(sorted(names | spots.keys()))} is changed by the loop or by a "
            if self.over:
                raise SourceError(f"{words}function that it calls when a step is replayed, and was not before")
            raise self.again(
                f"{words}function that it calls, in a place that can't be looked into, and would be again whenever a "
                "step is replayed: keep what changes in a list, a dict or an object of your own",
                consts=names,
                spots=spots.values(),
            )

    def check_replayed(self) -> None:
        """Refuse a change by a replayed step that no step has made before."""
        for one in self.net.changed():
            words = one.words if isinstance(one, Spot) else one
            raise ReplayError(
                f"{self.facts.where}: {words} is changed by the loop or by a function that it calls when a step is "
                "replayed, and was not when it ran for the first time: steps must do the same whenever they run"
            )

    def check_trial(self, objects: Sequence[Any], given: Given, opening: Opening) -> None:
        """Begin anew without copies for the first step if a view of one is kept: it is to be one of the array."""
        copies = [one for one in given.objects if given.is_private(one)]
        copies += [
            one
            for one, token in zip(opening.objects, opening.tokens)
            if opening.is_private(one) and token not in self.written
        ]
        if any(shared(self.framework, one, two) for two in copies for one in objects):
            self.facts.trial = False
            raise self.again(f"{self.facts.where}: the loop keeps views of an array from before it")

    def _refuse_written(self, name: str) -> None:
        """An array was written into that is not locked, so that what it was is lost."""
        raise SourceError(
            f"{self.words(name)}, which is needed as it was when steps are run again: write into a copy of it (x = "
            "x.clone()), or in the loop itself, where it can be seen"
        )

    def _name_of(self, opening: Opening, place: int) -> str:
        begin = 0
        for name, objects in opening.by_root():
            begin += len(objects)
            if place < begin:
                return name
        return f"a variable of {self.facts.text}"

    def words(self, name: str) -> str:
        return f"{self.facts.where}: a function that the loop calls writes into {name}"

    def raised(self, error: Exception, opening: Opening, given: Given) -> None:
        words = str(error)
        compiled = type(error).__module__.startswith("numba") and "readonly array" in words
        if is_locked(error) or compiled or (isinstance(error, RuntimeError) and _IN_PLACE in words):
            found = self.locked(error, frames_of(error), opening, given)
            clear_frames(error.__traceback__)
            error.__traceback__ = None  # it holds the frames of this run, which is over
            raise found
        if isinstance(error, PebblingError):
            raise error
        if not self._may_raise:
            message = f"{self.facts.where}: the loop ended with {error!r}"
            clear_frames(error.__traceback__)
            error.__traceback__ = None
            raise self.again(message, stops=True)

    def locked(self, error: Exception, frames: Iterable[FrameType], opening: Opening, given: Given) -> SourceError:
        """An array was written into that is held: find the names that reach it, and no more of them than necessary."""
        known = {name for name, copied in zip(self.entry.roots, self.copied) if copied}
        for touched in suspects(frames):
            names = {name for name, objects in opening.by_root() if any(self._touches(one, touched) for one in objects)}
            consts = {
                self.entry.const_owner(place) for place, one in enumerate(given.objects) if self._touches(one, touched)
            }
            spots = {
                owner.words: owner for one, owner in self.net.leaves if isinstance(owner, Spot) and id(one) in touched
            }
            if fresh := (names | consts | spots.keys()) - known:
                return self.again(self.words(", ".join(sorted(fresh))), fresh, consts, spots=spots.values())
        return SourceError(
            f"{self.facts.where}: the loop writes into an array that is needed as it is ({error}): write into a copy "
            f"of it (x = x{copying(self.framework)})"
        )

    def _touches(self, one: Any, touched: set[int]) -> bool:
        if self.framework.array(one):
            return id(one) in touched
        array = self.framework.plain(one) if is_leaf(one) else None
        return isinstance(array, ndarray) and (id(array) in touched or id(array.base) in touched)

    def check_views(self, objects: Sequence[Any], written: list[bool], given: Given, opening: Opening) -> None:
        """Refuse arrays between two steps that share memory without being one, where one may be written into."""
        if self.framework.execute is not None:
            self._check_arrays(objects, written, given)
            return
        views = [self.is_view(one) for one in objects]
        if not any(views):
            return
        for one, view, changing in zip(objects, views, written):
            if changing and view and type(one) is ndarray and self._is_foreign(one, opening):
                self.refuse_views(one)
            others = [
                two for two, other, also in zip(objects, views, written) if (view or other) and (changing or also)
            ]
            if any(shared(self.framework, one, two) for two in [*others, *(given.objects if changing else ())]):
                self.refuse_views(one)

    def _check_arrays(self, objects: Sequence[Any], written: list[bool], given: Given) -> None:
        """The same for arrays of a framework: by the memory that they look into."""
        by_memory: dict[int, list[tuple[Any, bool]]] = {}
        for one, changing in [*zip(objects, written), *[(one, False) for one in given.objects]]:
            memory = self.framework.memory(one)
            if memory is not None:
                by_memory.setdefault(memory[0], []).append((one, changing))
        for arrays in by_memory.values():
            for one, changing in arrays:
                if changing and any(shared(self.framework, one, two) for two, _ in arrays):
                    self.refuse_views(one)

    def is_view(self, one: Any) -> bool:
        if type(one) is ndarray:
            return one.base is not None
        if not is_leaf(one):
            return False
        if self.framework.array(one):
            return True  # whether it is one depends on whose memory it looks into
        return self.framework.root(one) is not one or getattr(self.framework.plain(one), "base", None) is not None

    def _is_foreign(self, array: ndarray, opening: Opening) -> bool:
        base: Any = array.base
        if type(base) is not ndarray or any(one is base for one in opening.objects):
            return False
        return getrefcount(base) > _BASE_ALONE + 1  # one for the name here

    def refuse_views(self, one: Any) -> None:
        shape = getattr(one, "shape", "")
        raise SourceError(
            f"{self.facts.where}: between two steps, an array of shape {shape} is a view of another one that is still "
            f"in use, and the loop writes into arrays: make it a copy ({copying(self.framework)})"
        )

    def check_new(self, taken: Taken, given: Given) -> None:
        if self.facts.captures:
            check_escape(self.facts, [*taken.objects, *taken.leaves], self._codes)
        check_leaves(self.facts.where, taken.leaves, self.framework.level, self._stays(given), taken.met)

    def _stays(self, given: Given) -> Callable[[Any], bool]:
        """Whether an object is the same one whenever a step runs: it was there before the loop."""
        entry, known, constants = self.entry, self.net.known, {} if given.fresh else given.known
        return lambda one: entry.taken.met(one) or id(one) in known or entry.given.met(one) or id(one) in constants

    def check_keys(self, shapes: Iterable[Any], given: Given) -> None:
        check_identities(self.facts.where, keyed(shapes), self._stays(given), "is a key of a dict")

    def check_memos(self, objects: Iterable[Any], given: Given | None) -> None:
        """Refuse results that are remembered, if they depend on what changes."""
        changing = set(map(id, objects))
        if given is not None:
            changing |= {id(one) for one, own in zip(given.objects, self.entry.given.objects) if one is not own}
        level, taken = self.framework.level, self.entry.taken
        self.net.memos.check(
            self.facts.where,
            lambda one: id(one) in changing or taken.met(one) or level(one) > 0 or restorer(type(one)) is not None,
        )


def same_mark(one: Any, two: Any) -> bool:
    """Whether two marks of one leaf say that nobody has written into it."""
    return one is two or (type(one) is int and one == two)


def is_leaf(one: Any) -> bool:
    """Whether an object is not taken apart."""
    return container_of(type(one)) is None
