"""The iterator of a loop on a tape: each turn of the user's ``for`` begins a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import PebblingError
from .planner import LoopPlanner
from .scope import Scope

if TYPE_CHECKING:
    from .tape import Tape


class TapeLoop:
    """Goes over the items of a loop; the loop on the tape ends with it, wherever the user leaves it."""

    def __init__(self, tape: Tape, items: Iterable[Any], length: int | None, planner: LoopPlanner) -> None:
        self._tape, self._length, self._planner = tape, length, planner
        self._items: Iterator[Any] = iter(items)
        self._scope: Scope | None = None
        self._over = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        if self._scope is None:
            self._scope = self._tape._enter(self._planner, self._length)
        else:
            self._tape._leave_inside(self._scope)
            if not self._tape._is_open(self._scope):
                raise PebblingError(
                    f"{self._planner.name} was ended when the tape was freed or a loop around it went on"
                )
            self._step_ended(self._scope)
        try:
            return next(self._items)
        except BaseException:
            self._end(mid_step=False)
            raise

    def _step_ended(self, scope: Scope) -> None:
        try:
            scope.boundary()
        except BaseException:
            # Half a step is worse than none: its values would have no way back.
            self._over = True
            self._tape.free()
            raise

    def _end(self, mid_step: bool) -> None:
        scope, self._scope = self._scope, None
        if scope is not None and not self._over and self._tape._is_open(scope):
            self._over = True
            self._tape._leave(scope, mid_step)
        self._over = True

    def __del__(self) -> None:
        try:
            self._end(mid_step=True)
        except Exception as error:  # nobody hears an error from here, so the tape raises it when it is used next
            self._tape.free()
            self._tape._failed = error
