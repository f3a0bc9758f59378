"""What a compiled loop leaves behind: names of its last step, and what lists collect.

Names that are bound in every step and needed after the loop alone are carried with it, unless they are the same
array as a variable of the state. A loop that may have no step begins with the values that they had before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import jax.numpy as jnp
from jax import lax

from ...errors import SourceError
from ...source.facts import Facts
from ...source.graph import UNBOUND, Builder, Shape, Taken
from ..compat import zeros
from .objects import TraceAnew
from .shapes import form
from .types import gives_way, is_array, is_number, same, type_of


class Outs:
    """Names that are bound in every step and needed after the loop alone."""

    def __init__(self, facts: Facts, names: Sequence[str], before: Sequence[Any], known: bool) -> None:
        """``before`` are their values before the loop; ``known`` says whether the loop is known to run a step."""
        self.names = names
        self.apart = False
        """Whether they are carried even if they are a variable of the state: it may be another one at each exit."""
        self._facts, self._before, self._known = facts, before, known
        self._types: list[Any] = []
        self._shapes: list[Shape] = []
        self._leaves: list[Any] = []
        self._places: list[tuple[str, int]] | None = None

    def begin(self) -> list[Any]:
        """What is carried before the first step."""
        if self._known or self._places is None:
            return [zeros(kind) for kind in self._types]
        leaves = taken_apart(self._before)[1].leaves
        old = [leaf for leaf, (kind, _) in zip(leaves, self._places) if kind == "extra"]
        return [self._converted(one, kind) for one, kind in zip(old, self._types)]

    def close(self, outs: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """What is carried of the values of one step; ``state`` are the variables that are carried anyway."""
        if not self.names:
            return []
        shapes, taken = taken_apart(outs)
        if self._places is None and not self._known:
            self._check_given(shapes, taken.leaves)
        places: list[tuple[str, int]] = []
        extra: list[Any] = []
        for leaf in taken.leaves:
            twin = next((place for place, one in enumerate(state) if one is leaf), None)
            if self._known and twin is not None and not self.apart:
                places.append(("state", twin))
            elif is_array(leaf) or (is_number(leaf) and not self._known):
                places.append(("extra", len(extra)))
                extra.append(leaf)
            else:
                places.append(("fixed", 0))
        types = [type_of(one) for one in extra]
        changed = places != self._places or any(
            (one.shape, one.dtype) != (two.shape, two.dtype) for one, two in zip(types, self._types)
        )
        self._shapes, self._leaves, self._places, self._types = shapes, taken.leaves, places, types
        if changed:
            raise TraceAnew
        return extra

    def finish(self, outs: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """The values after the loop."""
        if self._places is None:
            return list(self._before)
        pools = {"state": state, "extra": outs}
        leaves = [
            leaf if kind == "fixed" else pools[kind][place] for leaf, (kind, place) in zip(self._leaves, self._places)
        ]
        after = Builder(leaves).roots(self._shapes)
        return [old if one is UNBOUND else one for one, old in zip(after, self._before)]

    def _check_given(self, shapes: list[Shape], leaves: list[Any]) -> None:
        """A loop that may have no step leaves what was there before it."""
        for name, old in zip(self.names, self._before):
            if old is UNBOUND:
                self._refuse(
                    f"{name} is needed after the loop and has no value if the loop has no step", "give it one before it"
                )
        before, taken = taken_apart(self._before)
        fixed = [same(one, two) or (is_array(two) or is_number(two)) for one, two in zip(taken.leaves, leaves)]
        if form(before) != form(shapes) or not all(fixed):
            names = ", ".join(self.names)
            self._refuse(f"{names} have another structure before the loop than after it", "give them the same one")

    def _converted(self, value: Any, kind: Any) -> Any:
        old = type_of(value) if is_array(value) or is_number(value) else None
        if old is None or old.shape != kind.shape or not (old.dtype == kind.dtype or gives_way(old, kind)):
            names = ", ".join(self.names)
            self._refuse(
                f"the loop may have no step, and {names} have other types before it than after it",
                f"begin with arrays such as {kind.str_short(short_dtypes=False)}",
            )
        return jnp.asarray(value, kind.dtype) if is_number(value) else value

    def _refuse(self, reason: str, way_out: str) -> NoReturn:
        raise SourceError(f"{self._facts.where}: {reason}: {way_out}")


class Collected:
    """Lists to which the loop only appends."""

    def __init__(self) -> None:
        self._shapes: list[list[Shape]] = []
        self._leaves: list[Any] = []

    def close(self, lists: list[list[Any]]) -> list[Any]:
        """The arrays that one step has appended."""
        taken = Taken({}, apart=True)
        self._shapes = [[taken.take(value) for value in values] for values in lists]
        self._leaves = taken.leaves
        return [leaf for leaf in taken.leaves if is_array(leaf)]

    def finish(self, columns: Sequence[Any], lists: Sequence[list[Any]], steps: int) -> None:
        """Extend the user's lists by what all steps have appended."""
        rows = iter([[lax.index_in_dim(one, step, keepdims=False) for step in range(steps)] for one in columns])
        table = [next(rows) if is_array(leaf) else [leaf] * steps for leaf in self._leaves]
        for step in range(steps):
            made = iter(Builder([row[step] for row in table]).roots([one for shapes in self._shapes for one in shapes]))
            for shapes, target in zip(self._shapes, lists):
                target.extend([next(made) for _ in shapes])


def taken_apart(values: Sequence[Any]) -> tuple[list[Shape], Taken]:
    """The shapes of objects, and what they were taken apart into."""
    taken = Taken({}, apart=True)
    return [taken.take(value) for value in values], taken
