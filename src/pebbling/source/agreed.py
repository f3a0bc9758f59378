"""Whether a step has the same structure whenever it runs."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Any

from ..errors import SourceError
from .facts import Facts


class Agreed:
    """Proof that a step has the same structure, traced or not, as the first time, for leaves go by their places."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._runs: list[list[int]] = []
        """Steps from … to, and the number of the shape of the state after each of them."""
        self._last: tuple[int, Any] = (0, ())

    def state(self, step: int, number: int) -> None:
        """The state after ``step`` steps."""
        runs = self._runs
        last = runs[-1] if runs else None
        if last is not None and last[2] == number and last[0] <= step <= last[1]:
            return
        if not runs or step > runs[-1][1]:
            if runs and runs[-1][2] == number and runs[-1][1] == step - 1:
                runs[-1][1] = step
            else:
                runs.append([step, step, number])
            return
        place = bisect_right(runs, step, key=itemgetter(0)) - 1
        if place >= 0 and step <= runs[place][1] and runs[place][2] != number:
            self._refuse(step, "the state")

    def outs(self, step: int, shapes: Any) -> None:
        """What the last step gives besides."""
        if step > self._last[0]:
            self._last = step, shapes
        elif step == self._last[0] and shapes != self._last[1]:
            self._refuse(step, "the variables that the loop leaves behind")

    def emitted(self, step: int, known: list[Any], shapes: Any) -> None:
        """What a step appends to lists."""
        if step < len(known) and known[step] != shapes:
            self._refuse(step, "what the loop appends to lists")

    def _refuse(self, step: int, what: str) -> None:
        raise SourceError(
            f"{self._facts.where}: in {what} after step {step}, names or lists share an array in one run of the step "
            "and hold equal ones in another: make copies of arrays that are kept under several names (.copy())"
        )
