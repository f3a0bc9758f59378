"""The way back over a whole tape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..chain import Action, Advance, EndForward, Record, Reverse, Schedule, Turn
from .handle import Box
from .laid import Laid
from .laying import Unplanned
from .need import NOTHING, Survey
from .orders import First, Second
from .record import Chain
from .replay import Passage, Run

if TYPE_CHECKING:
    from .tape import Tape


def way_back(tape: Tape, order: First | Second, box: Box, seed: Any) -> dict[Box, Any]:
    """The cotangents of all leaves, by their boxes, from that of the result."""

    def plan(passage: Passage) -> Schedule:
        schedule: Schedule = passage.chain.plan.again(len(passage.chain), passage.try_turn if order.tangents else None)
        return schedule

    scope, root = tape._root, tape._root.chain
    survey = Survey(order.tangents)
    survey.boxes.add(box)
    study = survey.study(root, NOTHING, NOTHING)
    run = Run(order, tape._shelf, plan, tape._verify)
    run.cotangents[box] = seed
    passage = Passage(run, root, study, [])
    laid = scope.laying.take(len(root)) if isinstance(scope.laying, Unplanned) else None
    if not study.flat:
        if laid is None or not laid.slots or order.tangents:
            if laid is not None:
                laid.drop()
            passage.sweep(plan(passage))
            laid = passage.laid
    elif order.tangents:
        passage.sweep(_kept(root))
        laid = passage.laid
    else:
        turns: Iterator[Action] = (Turn(step) for step in reversed(range(len(root))))
        laid = Laid(len(root), 1, rest=turns)
    passage.back(laid, [None] * root.width(len(root)))
    return run.cotangents


def _kept(root: Chain) -> Iterator[Any]:
    """Keep all steps, whose values are kept anyway; of loops, only the last one keeps its snapshots till its turn."""
    loops = [step for step, template in enumerate(root.templates) if any(call.op is None for call in template.calls)]
    early = set(loops[:-1])
    for step in range(len(root)):
        yield Advance(step, step + 1) if step in early else Record(step)
    yield EndForward()
    for step in reversed(range(len(root))):
        yield Turn(step) if step in early else Reverse(step)
