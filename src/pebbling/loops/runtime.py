"""Runs a loop given as a step on flat leaves: what a source transform calls for every loop it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..budget import Budget
from ..chain import Online, Schedule
from ..chain.validate import whole
from ..units import parse_budget
from .frameworks import framework_of, numpy_framework
from .hidden import refuse_traced
from .node import Node, Outcome, straight
from .plan import Settle, check_length
from .program import Flat, Leaves, Program
from .replay import check_choice
from .shelf import Shelf


@dataclass(frozen=True)
class Options:
    """How a loop is checkpointed; at most one of ``slots``, ``memory`` and ``schedule``."""

    slots: int | None = None
    memory: float | str | None = None
    schedule: Schedule | Online | None = None
    verify: str | bool = "last"

    def __post_init__(self) -> None:
        check_choice(self.verify)
        if self.slots is not None:
            object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        if self.memory is not None:
            parse_budget(self.memory)
        schedule = Budget(self.slots, self.memory, self.schedule).schedule
        object.__setattr__(self, "schedule", schedule)

    @cached_property
    def settle(self) -> Settle:
        """What finds the schedule of a loop."""
        return Settle(Budget(self.slots, self.memory, self.schedule))


def run(
    step: Callable[..., tuple[Any, Any, Sequence[Any], Sequence[Any]]],
    items: Iterable[Any],
    state: Sequence[Any],
    consts: Sequence[Any] = (),
    options: Options | None = None,
    *,
    more: Callable[[Leaves, int], bool] | None = None,
    stops: bool = False,
    written: Sequence[int] = (),
    where: str | None = None,
) -> Outcome:
    """Run ``step`` over ``items`` so that a derivative through the result replays it within the budget.

    ``step(item, state, consts)`` gets two lists of leaves and returns ``(flag, state, outs, emitted)``:

    - ``state``: the new state, as many leaves as the old one. Leaves are anything: arrays and numbers
      that are floating point are differentiated, the rest is carried along, random generators as copies.
    - ``flag``: true ends the loop after this step (say ``stops=True`` if it ever is); any value, returned.
    - ``outs``: values of which only those of the last step matter; they are not part of snapshots.
    - ``emitted``: values that every step adds to the outputs of the loop, such as what a list collects.

    On traced values ``step`` is called with traced leaves, otherwise with plain ones; it must give the same
    results for the same arguments, and must not use traced values that it is not given (``SourceError``).
    It writes into no leaf it gets, except those of the state at the positions ``written``: they are copied
    when the loop begins and whenever a snapshot is kept or brought back, so it may write into them.

    ``items`` has a length and can be indexed (a ``range``, a list), and then its length is the number of
    steps; or it is any other iterable, which is taken up one by one and remembered. Items are plain: for
    the rows of a traced array, iterate over a range and index the array among ``consts``. ``more(state,
    index)``, asked before every step of the sweep, ends the loop when it is false; use
    ``itertools.count()`` for ``items`` of a ``while`` loop. The length is known in advance only where
    neither ``more`` nor ``stops`` is given and ``items`` has a length; such loops follow an optimal plan,
    others keep snapshots as they go (``Online``).

    Returns an ``Outcome``: ``state``, ``outs`` (empty without a step), ``emitted`` (one list a step), the
    last ``flag`` (``None`` without a step) and the number of ``steps``. With nothing traced it is a plain
    loop, and nothing is kept. ``where`` is how messages name the loop, such as "file.py:12".
    """
    program = Flat(step, items, more, stops, where)
    return execute(program, list(state), list(consts), options or _DEFAULT, written)


def execute(program: Program, state: Leaves, consts: Leaves, options: Options, written: Sequence[int] = ()) -> Outcome:
    """Run a program plainly, or as one node of the framework that follows its leaves."""
    framework = framework_of([*state, *consts])
    if framework is not None and framework.execute is not None:
        return framework.execute(program, state, consts, options, written)
    if framework is not None:
        if framework.enter is not None:
            state = [framework.enter(leaf, True) for leaf in state]
            consts = [framework.enter(leaf, False) for leaf in consts]
        return Node(framework, program, state, consts, options.settle, options.verify, written).call()
    if options.schedule is not None:
        check_length(options.settle.budget, program)
    if written:
        shelf = Shelf(numpy_framework(), written)
        shelf.put(0, state)
        state = shelf.get(0)
        shelf.clear()
    outcome = straight(program, state, consts)
    results = [*outcome.state, *outcome.outs]
    found = framework_of(results)
    if found is not None:
        names = program.names(len(outcome.state))
        names += [f"output {i}" for i in range(len(outcome.outs))]
        refuse_traced(found, program, results, names.__getitem__, 1)
    return outcome


_DEFAULT = Options()
