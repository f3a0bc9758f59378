"""All that a loop can reach and does not carry from step to step: a net that does not ask how it is reached.

    def drag(u, seen=[]):                   # its default is a list that grows
        seen.append(np.sum(u))
        return 0.1 * len(seen) * u

    for i in range(100):
        u = u - drag(u)                     # names nothing but drag

A replay is right if a step depends on nothing but what the loop carries and what stays as it is. So everything
that the loop's code can reach (``tree.reach``) is looked at after each step of the first sweep: whether the
containers have the same contents, by identity, and the spots (globals, defaults, attributes of classes and functions,
cells) hold the same. What has changed is carried from then on: the run begins anew (``Again``), all of it put back.
So it costs a little for each container that a loop could change and does not name, and nothing where there is none.

Replays find what is not carried as it was when the loop began, whatever the program has done with it since, and must
leave it so.

Not seen are changes inside of objects that are no containers (``containers.py``) and can't be pickled, and what
compiled code keeps to itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any, NamedTuple, TypeAlias

from ..tree.reach import ANY, Reach, Spot, catches, names_in, of_library, stored_in
from .containers import Container, container_of, looked_at, of_class, same_parts
from .entry import Entry, restorer
from .opaque import MEMO, Memos

Owner: TypeAlias = Spot | str
"""Where a container hangs: at a spot, or at a name of the loop."""
_SETS = (set, bytearray)


class Content(NamedTuple):
    """What a container holds at one moment."""

    one: Any
    cls: type
    container: Container
    owner: Owner
    children: list[Any]
    rest: Any

    def same(self) -> bool:
        """Whether it holds the same now."""
        children, rest = self.container.parts(self.one)
        return same_parts(children, self.children) and rest == self.rest and type(self.one) is self.cls


class Contents:
    """What some spots, containers and sets hold at one moment."""

    def __init__(
        self,
        spots: Iterable[Spot],
        containers: Iterable[tuple[Any, Container, Owner]],
        sets: Iterable[tuple[Any, Owner]],
        named: Iterable[tuple[Any, Collection[str]]],
    ) -> None:
        """``named`` are functions and classes, which can get new attributes, and those that they may get."""
        self.spots = [(spot, spot.get()) for spot in spots]
        self.contents = []
        for one, container, owner in containers:
            children, rest = container.parts(one)
            self.contents.append(Content(one, type(one), container, owner, list(children), rest))
        self.sets = [(one, type(one)(one), owner) for one, owner in sets]
        self.named = [(one, vars(one).keys() | free) for one, free in named]

    def changed(self, stored: Collection[str]) -> list[Owner]:
        """Where something is not as it was; of the spots, those whose names some code binds are looked at."""
        every = ANY in stored
        found: list[Owner] = [
            spot for spot, content in self.spots if (every or spot.name in stored) and spot.get() is not content
        ]
        found += [one.owner for one in self.contents if not one.same()]
        found += [owner for one, content, owner in self.sets if one != content]
        return found + self.new()

    def new(self) -> list[Owner]:
        """Attributes that functions and classes have got."""
        return [
            _attribute(one, name)
            for one, names in self.named
            if not vars(one).keys() <= names
            for name in vars(one).keys() - names
        ]

    def put_back(self) -> None:
        """Give everything what it held."""
        for spot in self.new():
            assert isinstance(spot, Spot)
            spot.remove()
        for one in self.contents:
            if not one.same():
                of_class(one.one, one.cls)
                one.container.fill(one.one, one.rest, one.children)
        for target, content, _ in self.sets:
            if target != content:
                target.clear()
                (target.update if isinstance(target, set) else target.extend)(content)
        for spot, content in self.spots:
            if spot.get() is not content:
                spot.put(content)


class Net:
    """The spots and the containers that a loop reaches; those that it does not carry are watched."""

    carries: bool = False
    """Whether the loop carries spots."""

    def __init__(self, function: Any, named: Sequence[tuple[str, Any]], around: Net | None = None) -> None:
        """``around`` is the net of the step that the loop runs in: what it knows is not walked again."""
        around = None if around is None or around.carries else around
        reach = Reach([*[value for _, value in named], function], {} if around is None else around.known)
        names = [*[name for name, _ in named], ""]
        self.spots = list(reach)
        begin = {key: one if isinstance(one, Spot) else names[one] for key, one in reach.came_from.items()}
        self.leaves = [(one, first if isinstance(first, Spot) else names[first]) for one, first in reach.leaves]
        met = [*[(one, begin[key]) for key, one in reach.met.items()], *self.leaves]
        self.loose = [
            (one, container, owner)
            for one, owner in met
            if type(one) not in _APART and (container := looked_at(one)) is not None and container.mutable
        ]
        self.named = [one for one in reach.met.values() if isinstance(one, FunctionType) or _is_own(one)]
        self.stored = {name for code in reach.codes for name in stored_in(code)}
        self.known: dict[int, Any] = reach.met
        memos = [one for one in reach.met.values() if type(one) is MEMO]
        asked = bool(memos) and any({"cache_info", "cache_clear"} & names_in(code) for code in reach.codes)
        self.catches = any(map(catches, reach.codes))
        """Whether code that the loop reaches handles exceptions, so that errors could go unseen."""
        if around is not None:
            self.spots, self.loose = [*around.spots, *self.spots], [*around.loose, *self.loose]
            self.leaves, self.named = [*around.leaves, *self.leaves], [*around.named, *self.named]
            self.stored |= around.stored
            self.catches |= around.catches
            self.known = {**around.known, **reach.met}
            memos += around.memos.memos
            asked |= around.memos.asked
        self.memos: Memos = Memos(memos, asked)
        self.before = Contents((), (), (), ())
        self.live = False
        """Whether there is something that could change from step to step."""
        self.idle = True
        """Whether there is nothing at all."""

    def to_carry(self, entry: Entry, learned: Collection[str], written: Iterable[int]) -> list[Spot]:
        """The spots whose contents are part of the state.

        Those that are known to change, and those with a generator of random numbers or an array that the loop writes
        into, for while a step runs there is a copy in its place.
        """
        copied = {id(entry.originals[token]) for token in written}
        copied |= {id(one) for one in entry.originals if restorer(type(one)) is not None}
        chosen = {spot.words for spot in self.spots} & set(learned)
        for one, owner in self.leaves:
            if isinstance(owner, Spot) and (id(one) in copied or (restorer(type(one)) and type(one) not in _SETS)):
                chosen.add(owner.words)
        return [spot for spot in self.spots if spot.words in chosen and not entry.taken.met(spot.holder)]

    def learn(self, spots: Iterable[Spot]) -> None:
        """Know of attributes that functions and classes get while the loop runs."""
        known = {(id(spot.holder), spot.name) for spot in self.spots}
        self.spots += [spot for spot in spots if (id(spot.holder), spot.name) not in known]

    def start(self, entry: Entry) -> None:
        """Note what there is before the first step, but for what the loop carries."""
        met, carried = _met(entry), {id(spot) for spot in entry.spots}
        self.carries = bool(carried)
        spots = [spot for spot in self.spots if id(spot) not in carried and not met(spot.holder)]
        free: dict[int, set[str]] = {}
        for spot in entry.spots:
            free.setdefault(id(spot.holder), set()).add(spot.name)
        instances = {
            id(one.__dict__) for one, _, _ in self.loose if type(one) not in _PLAIN and hasattr(one, "__dict__")
        }
        self.before = Contents(
            spots,
            [part for part in self.loose if not met(part[0]) and id(part[0]) not in instances],
            [pair for pair in self.leaves if isinstance(pair[0], _SETS) and not met(pair[0])],
            [(one, free.get(id(_holder(one)), ())) for one in self.named] if self.stored else (),
        )
        named = ANY in self.stored or any(spot.name in self.stored for spot in spots)
        self.live = bool(named or self.before.contents or self.before.sets or self.memos.memos)
        self.idle = not self.live and not spots

    def changed(self) -> list[Owner]:
        """Where something is not as it was before the first step."""
        return self.before.changed(self.stored)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """With everything as it was before the first step, whatever the program has done with it since."""
        before = self.before
        if not before.changed((ANY,)):
            yield
            return
        now = Contents(
            [*[spot for spot, _ in before.spots], *before.new()],  # type: ignore[list-item]
            [(one.one, one.container, one.owner) for one in before.contents],
            [(one, owner) for one, _, owner in before.sets],
            (),
        )
        before.put_back()
        try:
            yield
        finally:
            now.put_back()


def _met(entry: Entry) -> Callable[[Any], bool]:
    """Whether an object is carried: it is taken apart, or inside of an object that is copied as a whole."""
    whole = [one for one in entry.originals if container_of(type(one)) is None and not hasattr(one, "dtype")]
    inside = Reach(whole)
    deque(inside, 0)
    return lambda one: entry.taken.met(one) or id(one) in inside.met


def _is_own(one: Any) -> bool:
    return isinstance(one, type) and not of_library(one)


def _holder(one: Any) -> Any:
    """Who holds the attributes of a function or a class."""
    return one if isinstance(one, type) else vars(one)


def _attribute(one: Any, name: str) -> Spot:
    return Spot(_holder(one), name, f"{one.__name__}.{name}")


_PLAIN = frozenset({list, dict})
_APART = frozenset({CellType, *_SETS})
"""What is compared in other ways: cells are spots, sets have a list of their own."""
