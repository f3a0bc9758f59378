"""Proof that replayed steps give what they gave the first time.

``"last"`` remembers the digest of one state of the first sweep, that to which the first replay will
lead, and compares it when the replay gets there; ``"all"`` does so for every state. Both name the
step and the leaf that differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NoReturn

from ..chain import Advance, Record, Schedule
from ..errors import ReplayError
from ..tree import fingerprint, flatten, paths

CHOICES = ("last", "all", False)
_FAR = 10_000  # actions looked through for the first replay


class Verifier:
    """Remembers digests of states on the first sweep, compares them on replays."""

    def __init__(self, steps: set[int] | None) -> None:
        """``steps`` are the states to look at; ``None`` is all of them."""
        self.wanted = steps
        self.seen: dict[int, tuple[str, ...]] = {}
        self.compared = 0

    def wants(self, step: int) -> bool:
        """Whether the state before ``step`` is looked at."""
        return self.wanted is None or step in self.wanted

    def see(self, state: Any, step: int) -> None:
        """Look at the state before ``step``, which was just computed."""
        digests = tuple(fingerprint(leaf) for leaf in flatten(state)[0])
        known = self.seen.setdefault(step, digests)
        if known is not digests:
            self.compared += 1
            if known != digests:
                _refuse(state, step, known, digests)

    def look_back(self, state: Any, step: int) -> None:
        """Look at a state of the first sweep that only now turns out to be worth it."""
        if self.wanted is not None:
            self.wanted.add(step)
            self.see(state, step)


def verifier(verify: Any, schedule: Schedule | None) -> Verifier | None:
    """The verifier for one of the choices; ``schedule`` is ``None`` for a loop of unknown length."""
    if verify not in CHOICES:
        raise ValueError(f"verify must be 'last', 'all' or False, not {verify!r}")
    if verify is False:
        return None
    if verify == "all":
        return Verifier(None)
    return Verifier(set() if schedule is None else first_replay(schedule))


def first_replay(schedule: Schedule) -> set[int]:
    """The step to which the first replay leads, if there is one."""
    if schedule.steps < 2:
        return set()
    start = schedule.seek(schedule.steps - 1)
    return replayed(islice(schedule.since(start), _FAR))


def replayed(actions: Iterable[Any]) -> set[int]:
    """The first state that these actions compute."""
    for action in actions:
        if isinstance(action, Advance):
            return {action.stop}
        if isinstance(action, Record):
            return {action.step + 1}
    return set()


def _refuse(state: Any, step: int, known: tuple[str, ...], digests: tuple[str, ...]) -> NoReturn:
    names = paths(flatten(state)[1])
    differing = [name for name, one, two in zip(names, known, digests) if one != two] or ["its structure"]
    raise ReplayError(
        f"the state before step {step} came out differently when it was computed again: {', '.join(differing[:5])}. "
        "Usual causes: random numbers that are not part of the state (carry a numpy.random.Generator in it), a step "
        "that writes into its input, hidden state such as globals, counters or caches"
    )
