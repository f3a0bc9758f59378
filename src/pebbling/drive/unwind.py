"""The way back through a step that has an inverse: states are computed backwards, and no step is replayed.

Leapfrog and split integrators, coupling layers, shifts and lattice gases can be undone: ``inverse(state, i)`` gives
the state before step ``i`` from the one after it. One state is held then, however long the chain is, for one inverse
a step.

    sweep     0 . . . 4 . . . 8 . . . 12        three snapshots on the way, at 0, 4 and 8
    way back  12 11 10 9 | 8 7 6 5 | 4 3 2 1 | 0     each by inverse from the one after it; 8, 4 and 0 are restored

**What is exact.** In floating point ``(x + v) - v`` is not always ``x``, so an inverse on paper is one of bits only for
arithmetic that loses none: integers, fixed point, permutations, shifts by whole cells. A state that differs in its last
bit gives a gradient that differs, and nobody would see it. So a digest of every state of the first sweep is kept
(some 200 bytes a leaf and step), and each recomputed state must have it before it is used. One that has not is replayed
from the snapshot below it, as without an inverse; after two such stretches the inverse is not asked again. Both are
said in the report, and in a warning. Either way the gradient has the bits of storing everything.

**What may be inexact, when asked.** With ``drift=1e-9`` the recomputed states are used as they come. Where they meet a
snapshot they are compared, and more than that, relative to the largest entry of the leaf, is refused. The report says
how far they came apart and that the gradient is not exact.

**The third way of a plan.** With slots for all states they are all held. Else the inverse costs one evaluation a step
that is not held, and replaying costs what binomial checkpointing does. The cheaper is taken: an inverse that costs
five steps loses against ten slots for a hundred steps (3.55 replays a step).

What this does not do: resume, ranks, a schedule of the user's, memory and a store at once. Each is refused by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ..chain import Action, Advance, EndForward, Free, Restore, Snapshot, Turn
from ..chain.gaps import way_back
from ..errors import ReplayError
from ..tree import flatten, kind_of, paths
from .holdings import Held
from .inverse import Inverse
from .run import Run
from .steps import State

_TRUST = 2  # stretches of which the inverse gave other bits before it is not asked again


def spread(steps: int, slots: int) -> Iterator[Action]:
    """The first sweep with snapshots that are evenly spaced.

    >>> [action.step for action in spread(12, 3) if type(action) is Snapshot]
    [0, 4, 8]
    """
    slots = min(slots, steps)
    starts = [steps * slot // slots for slot in range(slots)] if slots else []
    for slot, (start, stop) in enumerate(zip(starts, [*starts[1:], steps])):
        yield Snapshot(start, slot, 0)
        yield Advance(start, stop)
    yield EndForward()


def back(run: Run, inverse: Inverse, slots: int) -> None:
    """Go back over the chain from its final state; the first sweep has ended."""
    _WayBack(run, inverse, slots).go()


class _WayBack:
    def __init__(self, run: Run, inverse: Inverse, slots: int) -> None:
        self.run, self.inverse, self.slots = run, inverse, slots
        self.held = {step: slot for (_, slot), step in run.table.items()}
        self.drifted: list[int] = []

    def go(self) -> None:
        run, holdings = self.run, self.run.holdings
        above = holdings.hold(run.final)
        step = run.number
        while step > 0:
            step -= 1
            if step in self.held:
                state = self._restored(step, above)
            else:
                state = self._inverted(step, above)
                if state is None:
                    holdings.release(above)
                    kept, step = self._replayed(step)
                    if kept is None:
                        break
                    above = kept
                    continue
            holdings.release(above)
            above = holdings.hold(state)
            run.state, run.at = holdings.state(above), step
            del state
            run.go([Turn(step)])
        else:
            holdings.release(above)
        self._tell()

    def _restored(self, step: int, above: Held) -> State:
        """The snapshot of a step, which is not needed any more."""
        run, slot = self.run, self.held.pop(step)
        run.go([Restore(step, slot, 0)])
        state = run.state
        if self.inverse.drift:
            found = self._call(step, above)
            self._measure(found, state, step)
        held = run.holdings.hold(state)
        run.go([Free(step, slot, 0)])
        state = run.holdings.state(held)
        run.holdings.release(held)
        return state

    def _inverted(self, step: int, above: Held) -> State:
        """The state before a step, or ``None`` if it has not got the bits of the first sweep."""
        state = self._call(step, above)
        verifier = self.run.verifier
        if self.inverse.drift:
            return state
        assert verifier is not None
        if not verifier.agrees(state, step):
            self.drifted.append(step)
            return None
        verifier.compared += 1
        return state

    def _call(self, step: int, above: Held) -> State:
        run = self.run
        given = run.holdings.state(above)
        run.at = step
        state = self.inverse(given, step)
        run.holdings.check(above)
        if state is None:
            raise TypeError(f"inverse(state, i) must return the state before step {step}, and returned None")
        run.report.inverted += 1
        return state

    def _replayed(self, step: int) -> tuple[Held | None, int]:
        """Reverse the stretch down to the snapshot below by replaying it; its first state, and where it begins.

        All the rest is reversed so, and there is no state to go on from, once the inverse was off too often.
        """
        run = self.run
        spare = sorted(set(range(self.slots)) - set(self.held.values()))
        places = sorted(self.held.items())
        if len(self.drifted) >= _TRUST:
            self.held.clear()
            run.go(way_back(places, step + 1, self.slots, spare))
            return None, 0
        start, slot = places[-1]
        del self.held[start]
        kept: Held | None = None
        for action in way_back([(start, slot)], step + 1, 1 + len(spare), spare):
            if type(action) is Turn and action.step == start:
                kept = run.holdings.hold(run.state)
                run.state = run.holdings.state(kept)
            run.go([action])
        return kept, start

    def _measure(self, found: State, known: State, step: int) -> None:
        """How far a recomputed state is from the one that was kept; more than is allowed is refused."""
        ones, structure = flatten(found)
        others, _ = flatten(known)
        for path, one, other in zip(paths(structure), ones, others):
            off = _distance(one, other)
            self.run.report.drift = max(self.run.report.drift, off)
            if not off <= self.inverse.drift:
                raise ReplayError(
                    f"{path} before step {step}, recomputed by inverse, is off by {off:.3g} of its largest entry, and "
                    f"drift={self.inverse.drift:g} is allowed: give more slots, so that snapshots are nearer to each "
                    "other, or leave out inverse="
                )

    def _tell(self) -> None:
        report, drifted = self.run.report, self.drifted
        if self.inverse.drift:
            report.lossy = True
        if not drifted:
            return
        report.drifted = len(drifted)
        with suppress(Warning):
            warnings.warn(
                f"inverse gave other bits than the first sweep before step {drifted[0]}"
                f"{f' and {len(drifted) - 1} more' if drifted[1:] else ''}, so steps were replayed in its place: the "
                "gradient is exact. For an inverse that is one up to rounding say drift=1e-9 or so, or leave it out",
                stacklevel=6,
            )


def _distance(one: Any, other: Any) -> float:
    """How far a leaf is from another, relative to the largest entry of the other."""
    if kind_of(one) is not kind_of(other):
        return float("inf")
    if not hasattr(one, "dtype"):
        return 0.0 if one == other else float("inf")
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    if first.dtype.kind not in "fc" or not second.size:
        return 0.0 if np.array_equal(first, second) else float("inf")
    return float(
        np.max(np.abs(first - second)) / max(float(np.max(np.abs(second))), float(np.finfo(second.dtype).tiny))
    )
