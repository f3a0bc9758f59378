"""The way back over a whole tape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..chain import Action, Advance, EndForward, Record, Reverse, Schedule, Turn
from .derivative_order import FirstOrder, SecondOrder
from .handle import Box
from .held import HeldStates
from .liveness import NOTHING, ChainLiveness
from .record import RecordedChain
from .recorder import OnlineRecorder
from .replay import ChainReplay, ReplayRun

if TYPE_CHECKING:
    from .tape import Tape


def way_back(tape: Tape, order: FirstOrder | SecondOrder, box: Box, seed: Any) -> dict[Box, Any]:
    """The cotangents of all leaves, by their boxes, from that of the result."""

    def plan(replay: ChainReplay) -> Schedule:
        schedule: Schedule = replay.chain.plan.again(len(replay.chain), replay.try_turn if order.tangents else None)
        return schedule

    scope, root = tape._root, tape._root.chain
    liveness = ChainLiveness(order.tangents)
    liveness.boxes.add(box)
    chain_plan = liveness.plan_of(root, NOTHING, NOTHING)
    run = ReplayRun(order, tape._shelf, plan, tape._verify)
    run.cotangents[box] = seed
    replay = ChainReplay(run, root, chain_plan, [])
    held = scope.recorder.take(len(root)) if isinstance(scope.recorder, OnlineRecorder) else None
    if not chain_plan.flat:
        if held is None or not held.slots or order.tangents:
            if held is not None:
                held.drop()
            replay.sweep(plan(replay))
            held = replay.held
    elif order.tangents:
        replay.sweep(_kept(root))
        held = replay.held
    else:
        turns: Iterator[Action] = (Turn(step) for step in reversed(range(len(root))))
        held = HeldStates(len(root), 1, rest=turns)
    replay.back(held, [None] * root.width(len(root)))
    return run.cotangents


def _kept(root: RecordedChain) -> Iterator[Any]:
    """Keep all steps, whose values are kept anyway; of loops, only the last one keeps its snapshots till its turn."""
    loops = [step for step, template in enumerate(root.templates) if any(call.op is None for call in template.calls)]
    early = set(loops[:-1])
    for step in range(len(root)):
        yield Advance(step, step + 1) if step in early else Record(step)
    yield EndForward()
    for step in reversed(range(len(root))):
        yield Turn(step) if step in early else Reverse(step)
