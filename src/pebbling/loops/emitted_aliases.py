"""Emitted values that stay in the state: how long each does, so that cotangents are added in a plain run's order.

``u = step(u); out.append(u)`` gives one value to the list and to the next step. On a tape of everything, what
the code after the loop does with the list reaches the cotangent of ``u`` first, before any later step does; so
on the way back over the steps it has to be there when the last step that still has ``u`` in its state is reversed.

For three steps of that loop, ``see`` notes after step 0 that the emitted ``u`` is place 0 of the state before step 1,
and the next one replaces it there: ``EmittedAlias(step=0, position=0, first=1, places=[0])``. When step 1 has been
reversed, the last to have it, ``until(1, 2)`` gives it, and the cotangent of the list's element joins that of ``u``.

Two values are one if they are the same object. A plain array that the step reaches from elsewhere may be the
same object as the value of a traced one without being it: ``check`` refuses that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import SourceError


class EmittedAlias(NamedTuple):
    """One emitted value: by which step, at which position, and where it is in the states from ``first`` on."""

    step: int
    position: int
    first: int
    places: list[int]

    @property
    def last(self) -> int:
        """The last state that has it: the one before the step of this number."""
        return self.first + len(self.places) - 1


def identity(leaf: Any) -> int | None:
    """The same number for the same value; ``None`` for values of which equal ones may be one object."""
    return None if leaf is None or type(leaf) in (float, complex, int, bool, str) else id(leaf)


class EmittedAliases:
    """Watches a sweep."""

    def __init__(self) -> None:
        self._here: dict[int, EmittedAlias] = {}
        """Those in the latest state, by identity; of several emissions of one value, the last."""
        self._over: dict[int, list[EmittedAlias]] = {}
        """The others, by the last state that has them."""
        self._ends: dict[int, list[tuple[int, int]]] = {}

    def see(self, start: int, stop: int, state: Sequence[Any], emitted: Sequence[Sequence[Any]]) -> None:
        """Look at the state after steps ``start … stop-1`` and at what each of them has emitted."""
        if not self._here and not any(emitted):
            return
        places: dict[int | None, int] = {}
        for place, leaf in enumerate(state):
            places.setdefault(identity(leaf), place)
        places.pop(None, None)
        here = {}
        for key, stay in self._here.items():
            if key in places:
                stay.places.extend([places[key]] * (stop - start))
                here[key] = stay
            else:
                self._over.setdefault(stay.last, []).append(stay)
        for step, part in enumerate(emitted, start):
            for position, leaf in enumerate(part):
                key = identity(leaf)  # type: ignore[assignment]
                if key in places:
                    here[key] = EmittedAlias(step, position, stop, [places[key]])
                    if step == stop - 1:
                        self._ends.setdefault(step, []).append((position, places[key]))
        self._here = here

    def end(self) -> None:
        """The sweep is over: what the last state has is an output of the loop under one name."""
        self._here = {}

    def until(self, start: int, stop: int) -> list[EmittedAlias]:
        """The values that steps ``start … stop-1`` are the last to have, and that were there before them."""
        if not self._over:
            return []
        found = [stay for last in range(start, stop) for stay in self._over.pop(last, ())]
        return [stay for stay in found if stay.first <= start]

    def check(
        self, step: int, state: Sequence[Any], emitted: Sequence[Any], level: Callable[[Any], int], where: str
    ) -> None:
        """Refuse an emitted value that is plain where the one of the state is traced."""
        for position, place in self._ends.get(step, ()):
            if (level(emitted[position]) > 0) != (level(state[place]) > 0):
                raise SourceError(
                    f"{where}: step {step} collects an array that it reaches both as a value that is being "
                    "differentiated and otherwise (as a global, say): collect a copy (.copy())"
                )
