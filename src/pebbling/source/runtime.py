"""What the code of a transformed function calls: runs each of its loops, plainly or under a derivative."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from ..engine.numpy.blank import is_under
from ..errors import SourceError
from ..loops.frameworks import Framework, framework_of
from ..loops.runtime import Options, execute
from ..refusal import Refused, withdraw
from ..tree.reach import Spot
from .callees import Callees, why_plainly
from .entry import SOURCES, Entry, private, restorer
from .escape import check_escape, codes_in
from .facts import Facts
from .finish import finish
from .graph import FIXED, SIMPLE, UNBOUND, Taken, is_module
from .guard import Again
from .items import View, items_of, joined, real, spanned, view_of
from .net import Net
from .program import Sink, SourceProgram
from .rewrite import RAISED, RETURNED
from .running import QUIET, running
from .watch import Watch

_MOST_ATTEMPTS = 64


class Call(NamedTuple):
    """A loop that is to run: what the code of a transformed function says of it."""

    facts: Facts
    options: Options
    inner: bool
    """Whether there are loops inside of it."""
    function: Callable[..., Any]
    """Runs the steps of given items: ``(items, *state, *consts, *emits) -> flag, value, state, outs``."""
    test: Callable[..., Any] | None
    """The head of ``while``: ``(logic, *state, *consts) -> answer, bound``, without the names that it binds itself,
    which it returns; ``None`` if there is nothing to ask."""
    iterable: Any
    state: tuple[Any, ...]
    outs: tuple[Any, ...]
    consts: tuple[Any, ...]
    emits: tuple[Any, ...]

    def plainly(self) -> tuple[Any, ...]:
        """Run it as plain Python does."""
        items = real(self.iterable, self.facts.is_for)
        flag, value, new, last = self.function(items, *self.state, *self.consts, *self.emits)
        kept = flag in (RETURNED, RAISED)
        return flag, value, [*new, *[old if kept or one is UNBOUND else one for one, old in zip(last, self.outs)]]

    def entry(self, sources: Sequence[Any], promoted: set[str], net: Net | None = None) -> Entry:
        """Which of its objects are state, and which stay; ``promoted`` grows by the constants that must be state."""
        spots: list[Spot] = []
        while True:
            entry = Entry(self.facts, self.state, self.consts, self.emits, sources, promoted, spots)
            shared = _shared(entry, self.facts, self.emits) - promoted
            known = len(spots)
            if net is not None and not shared:
                written = entry.written_tokens(set(self.facts.written) | self.facts.promoted_paths)
                spots = net.to_carry(entry, self.facts.spots, written)
            if not shared and len(spots) == known:
                return entry
            promoted |= shared

    def net(self, sources: Sequence[Any], promoted: set[str]) -> Net:
        """What it reaches; ``promoted`` grows by what it collects into that is no list, or is reached otherwise too."""
        named = [*zip([*self.facts.state, *self.facts.consts], [*self.state, *self.consts])]
        net = Net(self.function, [*named, *[(SOURCES, one) for one in sources]], QUIET.net)
        emits = zip(self.facts.emits, self.emits)
        promoted |= {name for name, one in emits if id(one) in net.known or type(one) not in (list, Sink)}
        return net


class Runtime:
    """The loops of one function, and how each is checkpointed."""

    UNBOUND = UNBOUND

    def __init__(
        self, facts: list[Facts], options: list[Options], callees: Callees | None = None, decorated: bool = True
    ) -> None:
        """``decorated``: whether the user has asked for this function, and not for one that calls it."""
        self.facts, self.options, self.callees, self.decorated = facts, options, callees, decorated
        self._outer = {loop.parent for loop in facts}
        self.listeners: list[Callable[[Facts, str], None]] = []
        """Told of every loop that runs as it is, and why; for ``explain``."""

    def __deepcopy__(self, memo: Any) -> Runtime:
        return self  # what it knows of the loops belongs to no step of any

    def call(self, called: Any) -> Any:
        """What to call: the same, or that with its loops checkpointed."""
        return called if self.callees is None or not is_under() else self.callees.of(called)

    def view(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """``zip``, ``enumerate``, ``reversed`` or ``range`` at the head of a loop."""
        if func is builtins.range:
            return spanned(args, kwargs)
        if func in (builtins.zip, builtins.enumerate, builtins.reversed):
            return joined(func, args, kwargs)
        return func(*[arg.real() if isinstance(arg, View) else arg for arg in args], **kwargs)

    def exits(self, items: Any) -> Any:
        """Who decides when a loop over these items is left by ``break``; ``None`` if its code does."""
        return getattr(items, "exits", None)

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
        test: Callable[..., Any] | None,
    ) -> tuple[Any, ...]:
        """Run a loop: how it ended, the value it returned or raised, and its variables."""
        facts = self.facts[number]
        framework = _followed(facts, iterable, [*state, *consts])
        inner = number in self._outer
        call = Call(facts, self.options[number], inner, function, test, iterable, state, outs, consts, emits)
        if not self.decorated and self.callees is not None:
            self.callees.reached = True
            followed = framework is not None and framework.execute is None and framework.compiled is None
            why = why_plainly(facts, iterable, running()) if followed else "it uses nothing that is differentiated"
            if why or framework is None or framework.idle():
                self._tell(facts, why)
                return call.plainly()
        if framework is None or framework.idle():
            self._tell(facts, "it uses nothing that is differentiated")
            return _plain(call)
        for emit in emits if framework.compiled is not None else ():
            if type(emit) not in (list, Sink):
                raise SourceError(
                    f"{facts.where}: the loop appends to {type(emit).__name__} objects: use lists for what a loop "
                    "collects"
                )
        if framework.compiled is not None:
            return tuple(framework.compiled(call))
        return self._followed(call, framework)

    def _tell(self, facts: Facts, why: str) -> None:
        for tell in self.listeners:
            tell(facts, why)

    def _followed(self, call: Call, framework: Framework) -> tuple[Any, ...]:
        facts, function, emits = call.facts, call.function, call.emits
        items: Any = items_of(call.iterable, facts.is_for, facts.where)
        stops, width, promoted = facts.stops, facts.width, set(facts.promoted)
        reached, net = 0, call.net(items.sources, promoted)
        for _ in range(_MOST_ATTEMPTS):
            entry = call.entry(items.sources, promoted, net)
            entry.check_copies()
            items.check_apart(entry)
            net.start(entry)
            program = SourceProgram(facts, function, framework, items, entry, width, stops, net)
            program.reached = reached
            _make_private(program)
            try:
                with Watch(net, program, running()):
                    outcome = execute(program, program.first, list(entry.given.leaves), call.options)
            except TypeError as error:
                self._give_up(program)
                if "pickle" in str(error):
                    raise SourceError(
                        f"{facts.where}: an object of the state can't be copied ({error}), and snapshots need that: "
                        "make it in every step, or before the loop"
                    ) from error
                raise
            except (Again, Refused) as error:
                self._give_up(program)
                again = error.error if isinstance(error, Refused) else error
                if not isinstance(again, Again) or again.maker is not program.guard:
                    raise
                withdraw(again)
                if not self._learned(again, facts, promoted, entry):
                    stops, width = stops or again.stops, max(width, again.width)
                net.learn(again.spots)
                reached = program.reached
                _check_untouched(program, again)
                continue
            except BaseException:
                self._give_up(program)
                raise
            facts.width = max(facts.width, program.width if width else 0)
            program.guard.over = True
            return finish(program, outcome, call.outs, emits)
        raise SourceError(f"{facts.where}: what this loop changes is not to be found out: use pebbling.loop")

    def _give_up(self, program: SourceProgram) -> None:
        """Let go of arrays, and leave everything as it was before the loop."""
        program.close()
        program.net.before.put_back()
        program.net.memos.forget()

    def _learned(self, again: Again, facts: Facts, promoted: set[str], entry: Entry) -> bool:
        """Remember what a run has found out about a loop; whether it concerns names."""
        spots = {spot.words for spot in again.spots}
        if not again.names and not again.consts and not spots:
            return False
        paths = {(name,) for name in again.names}
        carried = again.consts <= {*promoted, *entry.names} and spots <= {spot.words for spot in entry.spots}
        if paths <= facts.promoted_paths and carried:
            if again.names:
                raise SourceError(f"{again}: write into a copy of it (x = x.copy())") from again
            raise SourceError(str(again)) from again
        facts.promoted_paths |= paths
        facts.spots |= spots
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
    return framework_of(
        [*taken.leaves, *[one for leaf in taken.leaves if is_module(leaf) for one in leaf.parameters()]]
    )


def _plain(call: Call) -> tuple[Any, ...]:
    facts = call.facts
    flag, value, values = call.plainly()
    found = framework_of([one for one in values if type(one) not in SIMPLE])
    followed = found is not None and not found.idle() and any(map(found.level, values))
    if followed and found is not None and found.compiled is not None:
        raise SourceError(
            f"{facts.where}: the loop makes values that are traced from none that it names: begin with an array "
            "(jnp.asarray(0.0)), and pass what is traced to the function as an argument"
        )
    if followed:
        raise SourceError(
            f"{facts.where}: the loop uses a value that is being differentiated without naming it (through a "
            "generator, a global or an attribute of one): pass it to the function as an argument, or iterate over "
            "list(…)"
        )
    if facts.captures:
        _check_escape(facts, call.function, [*values, *call.emits])
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
    written = {id(entry.originals[token]) for token in program.guard.written}
    for place, leaf in enumerate(program.first):
        if restorer(type(leaf)) or ((type(leaf) is ndarray or program.framework.array(leaf)) and id(leaf) in written):
            program.first[place] = private(leaf, program.framework)


def _check_untouched(program: SourceProgram, again: Again) -> None:
    for leaf in program.entry.leaves:
        if hasattr(leaf, "__next__"):
            raise SourceError(f"{again}, and {leaf!r} has gone on in the meantime: use a list in place of it")


FIXED.add(Runtime)
