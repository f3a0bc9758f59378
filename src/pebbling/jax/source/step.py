"""One step of a plain Python loop on what JAX carries: the loop's own function, run on objects made for it.

What the step is given, and what has become of it, goes through ``objects``; what is left after the
loop through ``outputs``. A step that shows that more has to be carried is traced anew (``TraceAnew``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NoReturn

from ...errors import SourceError
from ...source.entry import Entry
from ...source.escape import check_escape, codes_in
from ...source.graph import UNBOUND
from ...source.rewrite import BROKEN, RAISED, RETURNED
from ...source.running import QUIET
from ...source.runtime import Call
from .errors import explained
from .logic import Exit, Exits, Logic
from .objects import Opened, TraceAnew, Variables
from .outputs import Collected, Outs, taken_apart


class Left(Exception):
    """The loop is left in its first iteration, whatever the values are."""


class Step:
    """A step of one loop, and the variables around it."""

    def __init__(self, call: Call, entry: Entry, known: bool) -> None:
        """``known`` says whether the loop is known to have a step."""
        self.call, self.facts, self.entry = call, call.facts, entry
        named = dict(zip([*self.facts.consts, *self.facts.emits], [*call.consts, *call.emits]))
        pairs = [*zip(self.facts.state, call.state), *[(name, named[name]) for name in entry.carried]]
        late = [
            name
            for name, value in zip(self.facts.state, call.state)
            if value is UNBOUND or name in self.facts.renewed  # without a value, the first step can't have read it
        ]
        self._dropped = {*self.facts.head, *self.facts.local.intersection(late)}
        """Names that every step binds before it reads them, and that are not needed afterwards, or known otherwise."""
        self._late = [name for name in late if known and name not in self._dropped]
        """Those that are needed afterwards."""
        self._kept = [name not in self._dropped and name not in self._late for name, _ in pairs]
        names, values = zip(*compress(pairs, self._kept)) if any(self._kept) else ((), ())
        self.variables = Variables(self.facts, names, values)
        outs = [*call.outs, *[UNBOUND for _ in self._late]]
        self.outs = Outs(self.facts, [*self.facts.outs, *self._late], outs, known)
        self.collected = Collected()
        self.exits = False
        """Whether the loop can be left by a ``break`` that is traced."""
        self.logic = Logic(self.facts.where)
        self._codes = codes_in(call.function.__code__) if self.facts.captures else set()
        self._times = 0

    def begin(self) -> tuple[list[Any], list[Any]]:
        """What is carried before the first step: variables, and what is needed after the loop alone."""
        return self.variables.begin(), self.outs.begin()

    def run(self, item: Any, values: Sequence[Any]) -> tuple[list[Exit], list[Any], list[Any], list[Any]]:
        """One step on what JAX carries: its exits, the new values, those needed afterwards, what lists collect."""
        opened = self.variables.open(values)
        collected: list[Any] = [[] for _ in self.facts.emits]
        state, consts, emits = self._arguments(opened, collected)
        before = taken_apart([item])
        items = Exits(self.facts.where, item, lambda found: self._at_exit(opened, found), opened.contents)
        again = self._times > 0
        QUIET.depth += again
        QUIET.steps += 1
        try:
            flag, value, new, outs = self.call.function(items, *state, *consts, *emits)
        finally:
            QUIET.depth -= again
            QUIET.steps -= 1
        self._times += 1
        if flag == RAISED:
            raise explained(value, self.call.function, self.facts.where)
        if flag in (BROKEN, RETURNED):
            raise Left
        now = taken_apart([item])
        if now[0] != before[0] or not all(one is two for one, two in zip(now[1].leaves, before[1].leaves)):
            self.refuse("the loop changes the items that it runs over", "collect the new ones in another list")
        named = dict(zip([*self.facts.state, *self.facts.outs], [*new, *outs]))
        changed, left = self._close(opened, named, collected)
        return items.found, changed, left, self.collected.close(collected)

    def ask(self, values: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """The head of the loop on what JAX carries: its answer, and what it binds."""
        state, consts, _ = self._arguments(self.variables.open(values), ())
        given = [one for name, one in zip(self.facts.state, state) if name not in self.facts.head]
        assert self.call.test is not None
        try:
            answer: tuple[Any, dict[str, Any]] = self.call.test(self.logic, *given, *consts)
        except Exception as error:
            found = explained(error, self.call.function, self.facts.where)
            if found is error:
                raise
            raise found from error
        return answer

    def finish(self, values: list[Any], outs: list[Any]) -> list[Any]:
        """The variables after the loop."""
        found: dict[str, Any] = dict(zip(self.facts.state, self.call.state))
        found |= zip(self.variables.names, self.variables.finish(values))
        found |= zip(self.outs.names, self.outs.finish(outs, values))
        if self.facts.head:
            found |= self.ask(values)[1]
        return [found[name] for name in [*self.facts.state, *self.facts.outs]]

    def _arguments(self, opened: Opened, emits: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """State, constants and lists to collect in, as the loop's function takes them."""
        facts, count = self.facts, len(self.facts.state)
        given = iter(opened.roots)
        roots = [next(given) if kept else UNBOUND for kept in self._kept]
        carried = dict(zip(self.entry.carried, roots[count:]))
        consts = [carried.get(name, value) for name, value in zip(facts.consts, self.call.consts)]
        return roots[:count], consts, [carried.get(name, one) for name, one in zip(facts.emits, emits)]

    def _at_exit(self, opened: Opened, named: dict[str, Any]) -> list[Any]:
        """What the loop is left with by a ``break`` that is traced."""
        if not self.exits:
            self._check_exits()
            self.exits = self.outs.apart = True
            raise TraceAnew
        for name in self._late:
            if named.get(name, UNBOUND) is UNBOUND:
                self.refuse(f"{name} has no value if a break ends the first step", "give it one before the loop")
        changed, left = self._close(opened, named, [])
        return [*changed, *left]

    def _close(self, opened: Opened, named: dict[str, Any], lists: list[Any]) -> tuple[list[Any], list[Any]]:
        """What has become of the variables, by name, at one point of a step."""
        rebound = [named.get(name, UNBOUND) for name, kept in zip(self.facts.state, self._kept) if kept]
        changed = self.variables.close(opened, [*rebound, *opened.roots[len(rebound) :]])
        outs = [named.get(name, UNBOUND) for name in self.outs.names]
        self._check_kept(opened, rebound, outs, lists)
        return changed, self.outs.close(outs, changed)

    def _check_kept(self, opened: Opened, new: Sequence[Any], outs: Sequence[Any], lists: Sequence[Any]) -> None:
        """Refuse what would be other objects after a compiled loop than after a plain one."""
        if self.facts.captures:
            taken = taken_apart([*new, *outs, *lists])[1]
            check_escape(self.facts, [*taken.objects, *taken.leaves], self._codes)
        if opened.shares(taken_apart(lists)[1].objects, new=False):
            self.refuse("the loop appends an object to a list and goes on changing it", "append a copy of it")
        if opened.shares(taken_apart(outs)[1].objects, new=True):
            self.refuse("two names stand for one object after the loop", "use one of them, or a copy")

    def _check_exits(self) -> None:
        if self.facts.emits:
            self.refuse_collecting("a break that is traced")
        if self.facts.otherwise:
            self.refuse("its else depends on a break that is traced", "use a variable, and jnp.where after the loop")
        if set(self.facts.head) - self.facts.local:
            self.refuse("its head binds a name that is needed after a break", "bind it in the loop")

    def refuse_collecting(self, what: str) -> NoReturn:
        """Lists can't collect an unknown number of values."""
        self.refuse(
            f"the loop appends to {', '.join(self.facts.emits)}, and has {what}",
            "write into an array of fixed size (ys = ys.at[k].set(y)), or use a for loop over range(n) with a number n",
        )

    def refuse(self, reason: str, way_out: str) -> NoReturn:
        """Raise the error for the line of the loop."""
        raise SourceError(f"{self.facts.where}: {reason}: {way_out}")
