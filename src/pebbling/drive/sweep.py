"""The first sweep of a loop of unknown length, as actions that follow from how the loop goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from ..chain import Action, Advance, Free, Online, Snapshot
from .agree import agree
from .holdings import Held
from .run import Run
from .steps import State


def sweep(run: Run, online: Online, more: Callable[[State, int], bool], comm: Any) -> Iterator[Action]:
    """The actions from where the run is to the end of the loop; ``run.number`` is its length then."""
    placement = online.placement()
    kept = next(placement, None)
    before: Held | None = None
    # Which replay will be the first is known only at the end, so each state to which one may lead is remembered.
    verifier = None if run.verifier is None or run.verifier.all else run.verifier
    for step in count(run.at):
        going = bool(more(run.state, step))
        if comm is not None:
            agree(comm, f"whether the loop goes on at step {step}", going)
        if before is not None and verifier is not None and (not going or (kept is not None and kept.step == step)):
            verifier.remember(run.holdings.state(before), step - 1)
        if not going:
            break
        while kept is not None and (kept.step < step or run.table.get((0, kept.slot)) == kept.step):
            kept = next(placement, None)
        if kept is not None and kept.step == step:
            if (0, kept.slot) in run.table and kept.evicted is not None:
                if verifier is not None:
                    verifier.forget(kept.evicted - 1)
                yield Free(kept.evicted, kept.slot, 0)
            yield Snapshot(step, kept.slot, 0)
            kept = next(placement, None)
        held = run.holdings.hold(run.state) if verifier is not None else None
        yield Advance(step, step + 1)
        if before is not None:
            run.holdings.release(before)
        before = held
    if before is not None:
        run.holdings.release(before)
    run.number = run.at
