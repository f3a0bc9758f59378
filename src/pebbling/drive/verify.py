"""Proof that replayed steps give what they gave the first time.

``"last"`` remembers the digest of one state of the first sweep, that to which the first replay will
lead, and compares it when the replay gets there; ``"all"`` does so for every state, and for every
state that comes back from where it was kept. Both name the step and the leaf that differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NoReturn, TypeAlias

from ..chain import Advance, EndForward, Record, Schedule
from ..chain.spans import Each, Item, Sub
from ..errors import ReplayError
from ..tree import copy, fingerprint, flatten, kind_of, paths
from ..tree.leaves import OTHER

NOWHERE = -1
Digests: TypeAlias = tuple[str, ...]


class Verifier:
    """Remembers digests of states on the first sweep, compares them on replays."""

    def __init__(self, target: int | None) -> None:
        """``target`` is the step before which the state is looked at; ``None`` is every step."""
        self.all = target is None
        self.target = NOWHERE if target is None else target
        self.seen: dict[int, Digests] = {}
        self.compared = 0

    def wants(self, step: int) -> bool:
        """Whether the state before ``step`` is looked at."""
        return self.all or step == self.target

    def wants_any(self, start: int, stop: int) -> bool:
        """Whether one of the states after ``start``, up to ``stop``, is looked at."""
        return self.all or start < self.target <= stop

    def see(self, state: Any, step: int, kept: bool = False) -> None:
        """Look at the state before ``step``, which was just computed, or was ``kept`` in memory until now."""
        found = digests(state)
        known = self.seen.setdefault(step, found)
        if known is found:
            return
        self.compared += 1
        if known != found:
            self._refuse(state, step, kept, known, found)
        if not self.all:
            self.target = NOWHERE
            self.seen.clear()

    def remember(self, state: Any, step: int) -> None:
        """Look at the state before ``step`` because it may turn out to be the one to look at."""
        self.seen[step] = digests(state)

    def forget(self, step: int) -> None:
        """That state will not be the one."""
        self.seen.pop(step, None)

    def agrees(self, state: Any, step: int) -> bool:
        """Whether the state before ``step`` is what it was, as far as that is known."""
        return self.seen.get(step) in (None, digests(state))

    def aim(self, held: Collection[int]) -> None:
        """Choose among the states remembered, once a loop has ended: the last that is not held will be replayed."""
        if not self.all:
            self.target = max((step for step in self.seen if step not in held), default=NOWHERE)
            self.seen = {step: known for step, known in self.seen.items() if step == self.target}

    def _refuse(self, state: Any, step: int, kept: bool, known: Digests, found: Digests) -> NoReturn:
        names = paths(flatten(state)[1])
        differing = [name for name, one, two in zip(names, known, found) if one != two]
        if len(known) != len(found):
            differing = [f"{len(found)} leaves instead of {len(known)}"]
        _refuse_incomparable(state, names, differing)
        what = f"the state before step {step} differs in {', '.join(differing[:5])}{' …' * (len(differing) > 5)}"
        if kept:
            raise ReplayError(
                f"{what} from what it was when it was stored: something wrote into it, past the lock on its arrays "
                "(through another view of the same memory, for one). A step must return its result in new arrays"
            )
        culprit, hint = ("", "") if self.all else (", or one before it,", '. verify="all" names the very step')
        raise ReplayError(
            f"step {step - 1}{culprit} gave another result when it was run again: {what}. Usual causes: random numbers "
            "that are not part of the state (carry a numpy.random.Generator in it), a step that writes into a state, "
            f"hidden state such as globals, counters or caches{hint}"
        )


def came_out_differently(where: str, step: int, differing: list[str], causes: str) -> ReplayError:
    """The error for a state of a loop that is not what it was; ``causes`` are the usual ones there."""
    return ReplayError(
        f"the state after step {step - 1} of {where} came out differently when it was computed again: "
        f"{', '.join(differing[:5])}. Usual causes: {causes}"
    )


def _refuse_incomparable(state: Any, names: list[str], differing: list[str]) -> None:
    """Say so if what differs is an object whose copies differ as well: caches that fill with use, for one."""
    for name, leaf in zip(names, flatten(state)[0]):
        if name in differing and kind_of(leaf) is OTHER and fingerprint(leaf) != fingerprint(copy(leaf)):
            raise ReplayError(
                f"{name} is a {type(leaf).__module__}.{type(leaf).__qualname__}, whose pickle differs between equal "
                "objects, so that it can't be told whether a replay gave the same: say how to take it apart with "
                "pebbling.tree.register, or leave the proof out with verify=False"
            )


def digests(state: Any) -> Digests:
    """One digest a leaf."""
    return tuple([fingerprint(leaf) for leaf in flatten(state)[0]])


def verifier(verify: Any, schedule: Schedule | None) -> Verifier | None:
    """The verifier for one of the choices; ``schedule`` is ``None`` for a loop of unknown length."""
    if verify is False:
        return None
    if verify == "all":
        return Verifier(None)
    return Verifier(NOWHERE if schedule is None else first_replay(schedule))


def check_choice(verify: Any) -> None:
    """Refuse what is not a choice."""
    if verify is not False and (not isinstance(verify, str) or verify not in ("last", "all")):
        raise ValueError(f"verify must be 'last', 'all' or False, not {verify!r}")


def first_replay(schedule: Schedule) -> int:
    """The step to which the first replay leads, or ``NOWHERE``."""
    cost = schedule.cost
    if not cost.tapes and cost.advances < schedule.steps:
        return NOWHERE
    ended = False
    for base, item in items(schedule):
        if isinstance(item, EndForward):
            ended = True
        elif ended and isinstance(item, Advance):
            return base + item.stop
        elif ended and (isinstance(item, Record) or (isinstance(item, Each) and item.kind is Record)):
            return base + (item.step if isinstance(item, Record) else item.start) + 1
    return NOWHERE


def items(schedule: Schedule) -> Iterator[tuple[int, Item]]:
    """The schedule in order, runs of tapes as one item each, with the step from which each counts."""
    stack = [(0, iter(schedule.expand(schedule.root)))]
    while stack:
        base, items = stack[-1]
        item = next(items, None)
        if item is None:
            stack.pop()
        elif isinstance(item, Sub):
            stack.append((base + item.offset, iter(schedule.expand(item.span))))
        else:
            yield base, item
