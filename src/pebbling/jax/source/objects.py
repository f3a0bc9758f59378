"""The variables of a loop as flat JAX values: objects taken apart, and made again.

Arrays and numbers that the loop changes are carried by JAX; everything else has to come out of a step
as it went in. Numbers inside of objects, and all that is in objects that the loop does not assign to, are
taken to stay until a step shows the opposite: then it is traced anew (``TraceAnew``), with those carried. So a
setting such as ``model.layers`` stays a Python int. Objects that were there before the loop get their new
contents when it is over.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import jax.numpy as jnp

from ...errors import SourceError
from ...source.containers import container_of
from ...source.entry import restorer
from ...source.facts import Facts
from ...source.graph import NEW, UNBOUND, Builder, Shape, Taken
from ...source.program import paths_of
from ...tree import fingerprint
from .shapes import form, in_order, refers, tokens_of
from .types import gives_way, is_array, is_number, same, type_of, type_words, words


class TraceAnew(Exception):
    """The step has to be traced anew, knowing more."""


class Opened:
    """The objects of one call of the loop's function."""

    def __init__(self, leaves: list[Any], shapes: Sequence[Shape]) -> None:
        self.leaves = leaves
        builder = Builder(leaves)
        self.roots = builder.roots(shapes)
        self.tokens = {id(one): token for one, token in zip(builder.objects, builder.tokens)}
        self._inside = [(one, _children(one)) for one in builder.objects if _is_mutable(one)]
        self.places: list[int] | None = None
        """Which of them were found again, and where."""
        self.left = Taken({})
        """The same variables after the call."""

    def abandoned(self, taken: Taken) -> bool:
        """Whether an object was changed of which nothing is left afterwards."""
        return any(not taken.met(one) and not _identical(_children(one), before) for one, before in self._inside)

    def contents(self) -> list[Any]:
        """All that is in objects which can change."""
        return [child for one, _ in self._inside for child in _children(one)]

    def shares(self, objects: Iterable[Any], new: bool) -> bool:
        """Whether one of some objects can change and is one of these, or, with ``new``, one that has come about."""
        return any(_is_mutable(one) and (id(one) in self.tokens or (new and self.left.met(one))) for one in objects)


class Variables:
    """The variables that a loop carries, from their values before it."""

    def __init__(self, facts: Facts, names: Sequence[str], values: Sequence[Any]) -> None:
        self.facts, self.names = facts, names
        taken = Taken({}, fresh=True, apart=True)
        self.shapes: list[Shape] = []
        self.paths: list[str] = []
        self._owners: list[str] = []
        self._reached: dict[str, Taken] = {}
        self.moving: list[bool] = []
        """Which leaves JAX carries."""
        for name, value in zip(names, values):
            shape = taken.take(value)
            self._reached[name] = Taken({})
            self._reached[name].take(value)
            self.shapes.append(shape)
            self.paths += paths_of(shape, name)
            self._owners += [name] * (len(taken.leaves) - len(self._owners))
            for leaf in taken.leaves[len(self.moving) :]:
                self.moving.append(name in facts.state and (is_array(leaf) or (is_number(leaf) and shape is None)))
        self.leaves, self.originals = taken.leaves, taken.objects
        self._kinds: dict[int, Any] = {}
        """Leaves that begin with another type than their own, such as a number that becomes an array."""
        self.final = self.shapes
        for path, leaf in zip(self.paths, self.leaves):
            if hasattr(leaf, "__next__"):
                self._refuse(f"{path} is an iterator, which moves on once, when the loop is compiled", "use an array")

    def begin(self) -> list[Any]:
        """The values of the leaves that are carried before the first step."""
        return [
            jnp.asarray(leaf, self._kinds[place]) if place in self._kinds else leaf
            for place, leaf in enumerate(self.leaves)
            if self.moving[place]
        ]

    def open(self, values: Sequence[Any]) -> Opened:
        """The objects for one call, with ``values`` in place of the leaves that are carried."""
        given = iter(values)
        leaves = [
            next(given) if moves else copy.deepcopy(leaf) if restorer(type(leaf)) else leaf
            for leaf, moves in zip(self.leaves, self.moving)
        ]
        return Opened(leaves, self.shapes)

    def close(self, opened: Opened, roots: Sequence[Any]) -> list[Any]:
        """What has become of the leaves that are carried; everything else must be as before."""
        taken = Taken(opened.tokens, apart=True)
        shapes = [taken.take(root) for root in roots]
        self._reorder(shapes)
        self._check_structure(shapes, roots)
        if opened.abandoned(taken):
            self._refuse("a step changes an object and then lets go of it", "change a copy, or keep the name")
        self._check_tokens(self.shapes, shapes)
        if opened.places is not None and opened.places != tokens_of(shapes):
            self._refuse(
                "after a break, the loop replaces an object that it changes", "change it, or replace it, before"
            )
        opened.places = tokens_of(shapes)
        changed = [self._is_changed(place, opened.leaves[place], one) for place, one in enumerate(taken.leaves)]
        if any(changed):
            self.moving = [moves or new for moves, new in zip(self.moving, changed)]
            raise TraceAnew
        carried = [place for place, moves in enumerate(self.moving) if moves]
        now = [taken.leaves[place] for place in carried]
        self._check_types(carried, [opened.leaves[place] for place in carried], now)
        opened.left = taken
        self.final = shapes
        return now

    def finish(self, values: Sequence[Any]) -> list[Any]:
        """The objects after the loop."""
        given = iter(values)
        leaves = [next(given) if moves else leaf for leaf, moves in zip(self.leaves, self.moving)]
        return _TracedFinish(leaves, self.originals).roots(self.final)

    def changes(self, objects: Iterable[Any]) -> bool:
        """Whether the loop may change one of these objects from before it."""
        moving = {name for name, moves in zip(self._owners, self.moving) if moves}
        return any(_is_mutable(one) and self._reached[name].met(one) for one in objects for name in moving)

    def _reorder(self, shapes: Sequence[Shape]) -> None:
        """Begin with dicts whose keys are in the order of those that a step makes."""
        places = iter(range(len(self.leaves)))
        pairs = [in_order(old, new, places) for old, new in zip(self.shapes, shapes)]
        order = [place for _, found in pairs for place in found]
        if order == sorted(order) or any(map(refers, self.shapes)):
            return
        self.shapes = [shape for shape, _ in pairs]
        self.leaves = [self.leaves[place] for place in order]
        self.moving = [self.moving[place] for place in order]
        self.paths = [self.paths[place] for place in order]
        self._owners = [self._owners[place] for place in order]
        self._kinds = {order.index(place): kind for place, kind in self._kinds.items()}
        raise TraceAnew

    def _check_structure(self, shapes: list[Shape], roots: Sequence[Any]) -> None:
        before, after = form(self.shapes), form(shapes)
        for name, one, two, root in zip(self.names, before, after, roots):
            if one != two:
                old = dict(zip(self.names, Builder(self.leaves).roots(self.shapes)))[name]
                self._refuse(
                    f"{name} has another structure after a step ({words(root)}) than before it ({words(old)})",
                    "give it the same lists, keys and types of objects from the start; collect what each step gives "
                    "with append to a list that the loop does not read",
                )

    def _check_tokens(self, before: Iterable[Shape], after: Iterable[Shape]) -> None:
        """Objects that are changed in place stay where they are."""
        for one, two in zip(before, after):
            if type(one) is not tuple or len(one) == 2:
                continue
            container = container_of(one[0])
            if container is not None and container.mutable and two[1] not in (NEW, one[1]):
                self._refuse("two objects of the loop change places", "copy them, or swap the arrays in them")
            self._check_tokens(one[3], two[3])

    def _is_changed(self, place: int, before: Any, after: Any) -> bool:
        """Whether a leaf that was taken to stay has changed after all."""
        if self.moving[place]:
            return False
        if same(before, after):
            self._check_untouched(place, before)
            return False
        path = self.paths[place]
        if before is UNBOUND:
            self._refuse(f"{path} has no value before the loop", "give it one, of the type that the loop gives it")
        if not (is_array(before) or is_number(before)) or not (is_array(after) or is_number(after)):
            self._refuse(
                f"{path} is {words(before)} before a step and {words(after)} after it, and JAX carries arrays and "
                "numbers alone",
                "begin with an array of the shape and type that the loop gives it",
            )
        return True

    def _check_untouched(self, place: int, leaf: Any) -> None:
        """Refuse an opaque object that was changed where it stands."""
        original = self.leaves[place]
        if leaf is original or not restorer(type(leaf)) or fingerprint([leaf]) == fingerprint([original]):
            return
        what = f"{self.paths[place]} ({type(leaf).__name__})"
        if hasattr(leaf, "normal") or hasattr(leaf, "random"):
            self._refuse(
                f"the loop draws from {what}, which would happen once, when the loop is compiled",
                "carry a key (key, this = jax.random.split(key)) and use jax.random",
            )
        self._refuse(f"the loop changes {what}, which JAX can't carry", "use an array")

    def _check_types(self, places: list[int], before: list[Any], after: list[Any]) -> None:
        kinds = dict(self._kinds)
        for place, one, two in zip(places, before, after):
            path = self.paths[place]
            if not is_array(two) and not is_number(two):
                self._refuse(f"{path} is an array before a step and {words(two)} after it", "keep it an array")
            old, new = type_of(one), type_of(two)
            if old.shape == new.shape and gives_way(old, new):
                kinds[place] = new.dtype
            elif (old.shape, old.dtype) != (new.shape, new.dtype):
                self._refuse(
                    f"{path} is {type_words(old)} before a step and {type_words(new)} after it, and a compiled loop "
                    "keeps shapes and types",
                    "begin with an array of the type that the loop gives it (jnp.zeros(shape, dtype)), or convert in "
                    "the loop (.astype)",
                )
        if kinds != self._kinds:
            self._kinds = kinds
            raise TraceAnew

    def _refuse(self, reason: str, way_out: str) -> NoReturn:
        raise SourceError(f"{self.facts.where}: {reason}: {way_out}")


class _TracedFinish(Builder):
    """Objects after the loop; those that can change and have a token are the ones from before it."""

    def __init__(self, leaves: Iterable[Any], originals: Sequence[Any]) -> None:
        super().__init__(leaves)
        self._originals = originals

    def begin(self, cls: type, token: int, rest: Any) -> Any:
        return super().begin(cls, token, rest) if token == NEW else self._originals[token]


def _is_mutable(one: Any) -> bool:
    container = container_of(type(one))
    return container is not None and container.mutable


def _children(one: Any) -> list[Any]:
    container = container_of(type(one))
    assert container is not None
    return list(container.parts(one)[0])


def _identical(one: list[Any], two: list[Any]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two))
