"""Where to keep snapshots on a sweep whose end is not known.

"Targeted greedy". With c slots the sweep goes through stages r = 1, 2, …, the r-th ending at
beta(c, r) steps; the positions that are optimal for just that many steps are kept when they are
reached, and stay until the stage ends. Any other state is kept only where evicting another for it
lowers the number of advances that the way back would take from here. Both kinds of moments are
known in advance, as they do not depend on the data, so between two of them the steps run in a tight
loop. The first ``TABLE`` of them are those of ``pebbling.Online``, written into the program as a
table; the rest are computed while it runs, in O(c) each, by the same rule in single precision.

For c of 10 and more the evaluations are 0.1 to 0.3 % above those of the offline optimum on average,
and at most 12 % for the worst length; no scheme that does not know the length meets the optimum for
every length beyond beta(c, 2).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from math import comb
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..chain.online import Online
from .planner import NOWHERE

TABLE = 4096
_STAGES, _DISTANCES, _LOOKAHEAD = 512, 512, 64


class Greedy(NamedTuple):
    """The state of the online plan, besides the snapshots themselves."""

    held: (
        Any  # three rows: steps of the snapshots, ascending (NOWHERE: none), their slots, whether the stage wants them
    )
    used: Any
    stage: Any
    target: Any  # which of the stage's positions was reached last
    wanted: Any  # the step of the next one
    next: Any  # the step whose state is kept next
    victim: Any  # which snapshot makes room for it


@lru_cache(16)
def _constants(slots: int) -> dict[str, np.ndarray]:
    columns = 16
    while columns < 256 and comb(slots + columns, slots) < 10**9:
        columns += 1
    big = int(NOWHERE)

    def beta(s: int, r: int) -> int:
        return min(comb(s + r, s), big)

    targets = np.full((_STAGES, slots), big, np.int64)
    for r in range(1, _STAGES):
        targets[r] = np.minimum(np.cumsum([0, *(beta(slots - q, r - 1) for q in range(slots - 1))]), big)
    reach = np.array([[beta(s, r) for r in range(columns)] for s in range(slots + 2)], np.float32)
    gaps = np.arange(slots - 1)
    distance = np.arange(_DISTANCES)
    two = np.maximum(0, distance[:, None] - reach[2][None]).sum(1) if slots > 1 else distance
    own = reach[slots - gaps]  # row k: with the slots that gap k has
    return {
        "targets": targets.astype(np.int32),
        "reach": _folded(np.concatenate([own, reach[slots + 1 - gaps], own[:-1]]), np.inf),
        "two": _folded(reach[min(2, slots)], np.inf),
        "beyond": _folded((gaps[None] > np.arange(slots)[:, None]).astype(np.float32), 0),
        "from_before": _folded((gaps[None] >= np.arange(slots)[:, None] - 1).astype(np.float32), 0),
        "relief": _folded((distance * (distance - 1) / 2 - two).astype(np.float32), np.inf),
    }


def _folded(values: np.ndarray, rest: float) -> np.ndarray:
    """The last axis as two: along one XLA adds no more than 32 numbers at a time, and writes all of them down first."""
    *lead, columns = values.shape
    padded = np.pad(values, [*[(0, 0)] * len(lead), (0, -columns % 32)], constant_values=rest)
    return padded.reshape(*lead, -1, 32)


def _advances(xp: Any, length: Any, reach: Any) -> Any:
    """t(length, s) as the sum over r of what exceeds beta(s, r)."""
    return xp.sum(xp.maximum(0.0, length[..., None, None].astype(xp.float32) - reach), (-2, -1))


@lru_cache(16)
def table(slots: int) -> np.ndarray:
    """The first snapshots after that of step 0, as rows of a step and a slot, closed by one that is never reached."""
    kept = [(k.step, k.slot) for k in islice(Online(slots).placement(), 1, TABLE + 1) if k.step < NOWHERE]
    return np.array([*kept, (NOWHERE, slots)], np.int32)


@lru_cache(16)
def after_table(slots: int) -> Greedy:
    """The plan once the table is through, as constants."""
    held = {0: 0} | {slot: step for step, slot in table(slots)[:-1].tolist()}
    taken = sorted((step, slot) for slot, step in held.items())
    last = taken[-1][0]
    stage = next(r for r in range(1, _STAGES) if last < comb(slots + r, slots) or r == _STAGES - 1)
    targets = _constants(slots)["targets"][stage]
    empty = [slot for slot in range(slots + 1) if slot not in held]
    positions = np.array([step for step, _ in taken] + [NOWHERE] * len(empty), np.int32)
    pinned = np.isin(positions, targets) & (np.arange(slots + 1) < len(taken))
    table_of = np.stack([positions, np.array([slot for _, slot in taken] + empty), pinned])
    nothing = np.int32(0)
    plan = Greedy(table_of, len(taken), stage, np.sum(targets[1:] <= last), nothing, nothing, nothing)
    return Greedy(*(np.asarray(v, np.int32) for v in _look_ahead(np, slots, plan, np.int32(last))))


def keep(slots: int, plan: Greedy, at: Any) -> tuple[Greedy, Any]:
    """The plan after the state of step ``at`` is kept, and its slot."""
    row, index = (lax.broadcasted_iota(jnp.int32, (3, slots + 1), axis) for axis in (0, 1))
    is_target = at == plan.wanted
    new_stage = is_target & (plan.target >= slots - 1) if slots > 1 else jnp.bool_(False)
    full = plan.used >= slots
    out, last = jnp.where(full, plan.victim, plan.used), jnp.minimum(plan.used, slots - 1)
    slot = plan.held[1, out]
    held = jnp.where(new_stage & (row == 2), (index == 0).astype(jnp.int32), plan.held)
    held = jnp.where((index >= out) & (index < last), jnp.roll(held, -1, 1), held)
    added = jnp.where(row == 0, at, jnp.where(row == 1, slot, is_target.astype(jnp.int32)))
    made = Greedy(
        jnp.where(index == last, added, held),
        jnp.minimum(plan.used + 1, slots),
        plan.stage + new_stage,
        jnp.where(new_stage, 1, plan.target + is_target),
        plan.wanted, plan.next, plan.victim,
    )  # fmt: skip
    return Greedy(*(jnp.asarray(v, jnp.int32) for v in _look_ahead(jnp, slots, made, at))), slot


def ledger(positions: Any) -> Any:
    """The steps of the snapshots in ascending order, and the slots they are in, from the steps slot by slot."""
    return jnp.stack(lax.sort((positions, lax.iota(jnp.int32, positions.shape[0])), num_keys=1))


def _look_ahead(xp: Any, slots: int, plan: Greedy, at: Any) -> Greedy:
    """The plan with the next step to keep, the stage's own or one that it pays to keep before, and what it evicts."""
    if slots == 1:
        return plan._replace(wanted=NOWHERE, next=NOWHERE)
    targets = xp.asarray(_constants(slots)["targets"])
    over = plan.target >= slots - 1
    stage = xp.minimum(plan.stage, _STAGES - 2) + over
    wanted = targets[stage, xp.where(over, 1, xp.minimum(plan.target + 1, slots - 1))]
    if slots == 2:
        return plan._replace(wanted=wanted, next=wanted, victim=1)
    steps, pinned = plan.held[0], plan.held[2] > 0
    end = steps[slots - 1]
    gain, victim = _gains(xp, slots, steps, pinned)
    soon = xp.where(xp.isfinite(gain), end + xp.maximum(_pays_after(xp, slots, gain), 1), NOWHERE)
    if slots < 5:
        first = _last_pays_after(xp, slots, steps)
        soon = xp.where(pinned[slots - 1], soon, xp.minimum(soon, end + first))
    soon = xp.where(plan.used >= slots, xp.maximum(soon, at + 1), NOWHERE)
    following = xp.minimum(wanted, soon)
    before, far = end - steps[slots - 2], following - end
    apart, both, alone = _advances(xp, xp.stack([before, before + far, far]), xp.asarray(_constants(slots)["two"]))
    kept = pinned[slots - 1] & ~((following == wanted) & over)
    last_is_better = (apart - both > gain - alone) & ~kept
    return plan._replace(wanted=wanted, next=following, victim=xp.where(last_is_better, slots - 1, victim))


def _gains(xp: Any, slots: int, positions: Any, pinned: Any) -> tuple[Any, Any]:
    """What evicting a snapshot for one at the end saves at best, but for what grows with the distance; and which."""
    tables = _constants(slots)
    gaps = positions[1:slots] - positions[: slots - 1]
    lengths = xp.concatenate([gaps, gaps, gaps[:-1] + gaps[1:]])
    # One sum for the three: each is a kernel to compile.
    taken = _advances(xp, lengths, xp.asarray(tables["reach"]))
    own, more, merged = taken[: slots - 1], taken[slots - 1 : 2 * slots - 2], taken[2 * slots - 2 :]
    own_row, more_row = (xp.pad(t, (0, (1 - slots) % 32)).reshape(-1, 32) for t in (own, more))
    now = xp.sum(xp.asarray(tables["from_before"]) * own_row - xp.asarray(tables["beyond"]) * more_row, (-2, -1))
    gain = xp.where(pinned[1 : slots - 1], -xp.inf, now[1:-1] - merged)
    best = xp.argmax(gain)
    return gain[best], (best + 1).astype(xp.int32)


def _pays_after(xp: Any, slots: int, gain: Any) -> Any:
    """The distance from the last snapshot at which evicting the best of the others begins to pay."""
    enough = xp.sum(xp.asarray(_constants(slots)["relief"]) <= -gain, dtype=xp.int32)
    far = xp.ceil(1.25 * xp.sqrt(xp.maximum(-2.0 * gain, 1.0)))
    return xp.where(enough < _DISTANCES, enough, xp.minimum(far, 1e9).astype(xp.int32))


def _last_pays_after(xp: Any, slots: int, positions: Any) -> Any:
    """The distance from the last snapshot at which evicting that one begins to pay."""
    two = xp.asarray(_constants(slots)["two"])
    before = positions[slots - 1] - positions[slots - 2]
    far = xp.arange(1, _LOOKAHEAD + 1)
    gain = _advances(xp, before, two) + far * (far - 1) / 2 - _advances(xp, before + far, two)
    pays = gain > 0
    return xp.where(xp.any(pays), xp.argmax(pays) + 1, _LOOKAHEAD).astype(xp.int32)
