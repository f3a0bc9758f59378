"""What the code of a transformed function calls: runs each of its loops, plainly or under a derivative."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from numpy import ndarray

from ..errors import SourceError
from ..loops.frameworks import Framework, framework_of
from ..loops.runtime import Options, execute
from .entry import RESTORE, SOURCES, Entry, private
from .escape import check_escape, codes_in
from .facts import Facts
from .finish import finish
from .graph import SIMPLE, UNBOUND, Taken
from .items import View, items_of, joined, real, view_of
from .lean import LeanProgram
from .program import QUIET, Again, Sink, SourceProgram
from .rewrite import RAISED, RETURNED
from .watch import Watch

_MOST_ATTEMPTS = 64


class Runtime:
    """The loops of one function, and how each is checkpointed."""

    UNBOUND = UNBOUND

    def __init__(self, facts: list[Facts], options: list[Options]) -> None:
        self.facts, self.options = facts, options
        self.listeners: list[Callable[[Facts], None]] = []
        """Told of every loop that runs without a derivative; for ``explain``."""

    def view(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """``zip``, ``enumerate`` or ``reversed`` at the head of a loop."""
        if func in (builtins.zip, builtins.enumerate, builtins.reversed):
            return joined(func, args, kwargs)
        return func(*[arg.real() if isinstance(arg, View) else arg for arg in args], **kwargs)

    def print(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """``print``, unless this step has been run before."""
        return None if QUIET.depth and func is builtins.print else func(*args, **kwargs)

    def run(
        self,
        number: int,
        function: Callable[..., Any],
        iterable: Any,
        state: tuple[Any, ...],
        outs: tuple[Any, ...],
        consts: tuple[Any, ...],
        emits: tuple[Any, ...],
    ) -> tuple[Any, ...]:
        """Run a loop: how it ended, the value it returned or raised, and its variables."""
        facts = self.facts[number]
        framework = _followed(facts, iterable, [*state, *consts])
        if framework is None:
            for tell in self.listeners:
                tell(facts)
            return _plain(facts, function, iterable, state, outs, consts, emits)
        for emit in emits:
            if type(emit) not in (list, Sink):
                raise SourceError(
                    f"{facts.where}: the loop appends to {type(emit).__name__} objects: use lists for "
                    "what a loop collects"
                )
        return self._followed(facts, framework, function, iterable, state, outs, consts, emits)

    def _followed(
        self,
        facts: Facts,
        framework: Framework,
        function: Callable[..., Any],
        iterable: Any,
        state: Sequence[Any],
        outs: Sequence[Any],
        consts: Sequence[Any],
        emits: Sequence[Any],
    ) -> tuple[Any, ...]:
        items: Any = items_of(iterable, facts.is_for, facts.where)
        stops, width, promoted = facts.stops, facts.width, set(facts.promoted)
        reached = 0
        for _ in range(_MOST_ATTEMPTS):
            entry = Entry(facts, state, consts, emits, items.sources, promoted)
            if shared := _shared(entry, facts, emits) - promoted:
                promoted |= shared
                continue
            entry.check_copies()
            items.check_apart(entry)
            kind = LeanProgram if entry.is_simple and not facts.captures else SourceProgram
            program = kind(facts, function, framework, items, entry, width, stops)
            program.reached = reached
            _make_private(program)
            try:
                with Watch(function, program):
                    outcome = execute(program, program.first, list(entry.given.leaves), self.options[facts.number])
            except TypeError as error:
                program.close()
                if "pickle" in str(error):
                    raise SourceError(
                        f"{facts.where}: an object of the state can't be copied ({error}), and snapshots "
                        "need that: make it "
                        "in every step, or before the loop"
                    ) from error
                raise
            except Again as again:
                if not self._learned(again, facts, promoted):
                    stops, width = stops or again.stops, max(width, again.width)
                reached = program.reached
                program.close()
                _check_untouched(program, again)
                continue
            except BaseException:
                program.close()
                raise
            facts.width = max(facts.width, program.width if width else 0)
            return finish(program, outcome, outs, emits)
        raise SourceError(f"{facts.where}: what this loop changes is not to be found out: use pebbling.loop")

    def _learned(self, again: Again, facts: Facts, promoted: set[str]) -> bool:
        """Remember what a run has found out about a loop; whether it concerns names."""
        if not again.names:
            return False
        paths = {(name,) for name in again.names}
        if paths <= facts.promoted_paths and again.consts <= promoted:
            raise SourceError(f"{again}: write into a copy of it (x = x.copy())") from again
        facts.promoted_paths |= paths
        promoted |= again.consts
        facts.promoted |= again.consts - {SOURCES}
        return True


def _followed(facts: Facts, iterable: Any, values: list[Any]) -> Framework | None:
    """The framework that follows what a loop is given, if there is one."""
    if facts.is_for and type(iterable) not in SIMPLE:
        view = view_of(iterable)
        if view is not None:
            values = [*values, *view.sources]
    if all(type(value) in SIMPLE for value in values):
        return None
    found = framework_of(values)
    if found is not None:
        return found
    taken = Taken({})
    for value in values:
        taken.take(value)
    return framework_of(taken.leaves)


def _plain(
    facts: Facts,
    function: Callable[..., Any],
    iterable: Any,
    state: Sequence[Any],
    outs: Sequence[Any],
    consts: Sequence[Any],
    emits: Sequence[Any],
) -> tuple[Any, ...]:
    flag, value, new, last = function(real(iterable, facts.is_for), *state, *consts, *emits)
    kept = flag in (RETURNED, RAISED)
    values = [*new, *[old if kept or one is UNBOUND else one for one, old in zip(last, outs)]]
    if framework_of([one for one in values if type(one) not in SIMPLE]) is not None:
        raise SourceError(
            f"{facts.where}: the loop uses a value that is being differentiated without naming it "
            "(through a generator, "
            "a global or an attribute of one): pass it to the function as an argument, or iterate over list(…)"
        )
    if facts.captures:
        _check_escape(facts, function, [*values, *emits])
    return flag, value, values


def _check_escape(facts: Facts, function: Any, values: Sequence[Any]) -> None:
    taken = Taken({})
    for value in values:
        taken.take(value)
    check_escape(facts, [*taken.objects, *taken.leaves], codes_in(function.__code__))


def _shared(entry: Entry, facts: Facts, emits: Sequence[Any]) -> set[str]:
    """Constants and collected lists that have to be state, because an object of the state is reached through them."""
    twice = {id(one) for one in emits if sum(one is other for other in emits) > 1}
    met = [
        name
        for name, one in zip(facts.emits, emits)
        if id(one) in twice or entry.taken.met(one) or entry.given.met(one)
    ]
    holders = [entry.const_owner_of(one) for name, one in zip(facts.emits, emits) if entry.given.met(one)]
    return {*entry.shared_with_state(), *met, *holders}


def _make_private(program: SourceProgram) -> None:
    """Copies of what the loop changes and the user still holds; they are given back in the end."""
    entry = program.entry
    written = {id(entry.originals[token]) for token in program.written}
    for place, leaf in enumerate(program.first):
        if type(leaf) in RESTORE or (type(leaf) is ndarray and id(leaf) in written):
            program.first[place] = private(leaf)


def _check_untouched(program: SourceProgram, again: Again) -> None:
    for leaf in program.entry.leaves:
        if hasattr(leaf, "__next__"):
            raise SourceError(f"{again}, and {leaf!r} has gone on in the meantime: use a list in place of it")
