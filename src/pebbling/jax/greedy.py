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

from ..chain.online import Online
from .planner import NOWHERE

TABLE = 2048
_STAGES, _DISTANCES, _LOOKAHEAD = 512, 512, 64


class Greedy(NamedTuple):
    """The state of the online plan, besides the snapshots themselves."""

    positions: Any  # steps of the snapshots, ascending; NOWHERE where a slot is empty
    order: Any  # the slots they are in
    pinned: Any
    used: Any
    stage: Any
    target: Any  # which of the stage's positions comes next
    next: Any  # the step whose state is kept next
    gain: Any  # what evicting ``victim`` would save, but for the part that grows with the distance
    victim: Any


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
    return {
        "targets": targets.astype(np.int32),
        "own": reach[slots - gaps],  # row k: with the slots that gap k has
        "more": reach[slots + 1 - gaps],
        "two": reach[min(2, slots)],
        "beyond": (gaps[None] > np.arange(slots)[:, None]).astype(np.float32),
        "from_before": (gaps[None] >= np.arange(slots)[:, None] - 1).astype(np.float32),
        "relief": (distance * (distance - 1) / 2 - two).astype(np.float32),
    }


def _advances(xp: Any, length: Any, reach: Any) -> Any:
    """t(length, s) as the sum over r of what exceeds beta(s, r)."""
    return xp.sum(xp.maximum(0.0, length[..., None] - reach), -1)


@lru_cache(16)
def table(slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The first snapshots after that of step 0: their steps and slots, closed by one that is never reached."""
    kept = [*islice(Online(slots).placement(), 1, TABLE + 1)]
    steps = [k.step for k in kept if k.step < NOWHERE]
    return (
        np.array([*steps, NOWHERE], np.int32),
        np.array([*(k.slot for k in kept[: len(steps)]), slots], np.int32),
    )


@lru_cache(16)
def after_table(slots: int) -> Greedy:
    """The plan once the table is through, as constants."""
    steps, places = table(slots)
    held = {0: 0} | {int(slot): int(step) for step, slot in zip(steps[:-1], places[:-1])}
    taken = sorted((step, slot) for slot, step in held.items())
    last = taken[-1][0]
    stage = next(r for r in range(1, _STAGES) if last < comb(slots + r, slots) or r == _STAGES - 1)
    targets = _constants(slots)["targets"][stage]
    empty = [slot for slot in range(slots + 1) if slot not in held]
    index = np.arange(slots + 1)
    positions = np.array([step for step, _ in taken] + [NOWHERE] * len(empty), np.int32)
    plan = Greedy(
        np.asarray(positions),
        np.asarray([slot for _, slot in taken] + empty, np.int32),
        np.asarray(np.isin(positions, targets) & (index < len(taken))),
        np.int32(len(taken)), np.int32(stage), np.int32(np.sum(targets[1:] <= last)), np.int32(0),
        np.float32(0), np.int32(0),
    )  # fmt: skip
    return _typed(np, _look_ahead(np, slots, plan, np.int32(last)))


def _typed(xp: Any, plan: Greedy) -> Greedy:
    """The plan in the types that a loop carries it in."""
    kinds = dict.fromkeys(Greedy._fields, np.dtype(np.int32)) | {"pinned": np.dtype(bool), "gain": np.dtype(np.float32)}
    return Greedy(*(xp.asarray(value, kinds[name]) for name, value in plan._asdict().items()))


def keep(slots: int, plan: Greedy, at: Any) -> tuple[Greedy, Any]:
    """The plan after the state of step ``at`` is kept, and its slot."""
    index = jnp.arange(slots + 1, dtype=jnp.int32)
    is_target = at == _target(jnp, slots, plan)
    new_stage = is_target & (plan.target >= slots - 1) if slots > 1 else jnp.bool_(False)
    pinned = jnp.where(new_stage, index == 0, plan.pinned)
    full = plan.used >= slots
    out = jnp.where(full, _victim(slots, plan, pinned, at), plan.used)
    last = jnp.where(full, slots - 1, plan.used)

    def shifted(values: Any, value: Any) -> Any:
        moved = jnp.where((index >= out) & (index < last), jnp.roll(values, -1), values)
        return jnp.where(index == last, value, moved)

    slot = plan.order[out]
    made = Greedy(
        shifted(plan.positions, at), shifted(plan.order, slot), shifted(pinned, is_target),
        jnp.minimum(plan.used + 1, slots),
        jnp.where(new_stage, plan.stage + 1, plan.stage),
        jnp.where(new_stage, 1, plan.target + is_target),
        plan.next, plan.gain, plan.victim,
    )  # fmt: skip
    return _typed(jnp, _look_ahead(jnp, slots, made, at)), slot


def ledger(positions: Any) -> Any:
    """The steps of the snapshots in ascending order, and the slots they are in, from the steps slot by slot."""
    index = jnp.arange(positions.shape[0], dtype=jnp.int32)
    before = (positions[None] < positions[:, None]) | (
        (positions[None] == positions[:, None]) & (index < index[:, None])
    )
    rank = jnp.sum(before.astype(jnp.int32), 1)
    at = rank[None] == index[:, None]
    steps, slots = (jnp.sum(jnp.where(at, values, 0), 1) for values in (positions, index))
    return jnp.stack([steps, slots]).astype(jnp.int32)


def _target(xp: Any, slots: int, plan: Greedy) -> Any:
    """The next step whose state is kept because the stage wants it."""
    if slots == 1:
        return xp.int32(NOWHERE)
    targets = xp.asarray(_constants(slots)["targets"])
    stage = xp.minimum(plan.stage, _STAGES - 2)
    over = plan.target >= slots - 1
    return xp.where(over, targets[stage + 1, 1], targets[stage, xp.minimum(plan.target + 1, slots - 1)])


def _gains(xp: Any, slots: int, positions: Any, pinned: Any) -> tuple[Any, Any]:
    """The best snapshot to evict for one at the end, and the gain but for the part that grows with the distance."""
    tables = _constants(slots)
    gaps = (positions[1:slots] - positions[: slots - 1]).astype(xp.float32)
    own, more = _advances(xp, gaps, xp.asarray(tables["own"])), _advances(xp, gaps, xp.asarray(tables["more"]))
    merged = _advances(xp, gaps[:-1] + gaps[1:], xp.asarray(tables["own"][:-1]))
    now = xp.sum(xp.asarray(tables["from_before"]) * own - xp.asarray(tables["beyond"]) * more, -1)
    gain = now[1:-1] - merged
    gain = xp.where(pinned[1 : slots - 1], -xp.inf, gain)
    best = xp.argmax(gain)
    return gain[best], (best + 1).astype(xp.int32)


def _last_gain(xp: Any, slots: int, positions: Any, distance: Any) -> Any:
    """The gain of evicting the last snapshot for one ``distance`` steps after it."""
    two = xp.asarray(_constants(slots)["two"])
    before = (positions[slots - 1] - positions[slots - 2]).astype(xp.float32)
    far = xp.asarray(distance, xp.float32)
    return _advances(xp, before, two) + far * (far - 1) / 2 - _advances(xp, before + far, two)


def _relief(slots: int, distance: Any) -> Any:
    two = jnp.asarray(_constants(slots)["two"])
    far = jnp.asarray(distance, jnp.float32)
    return far * (far - 1) / 2 - _advances(jnp, far, two)


def _victim(slots: int, plan: Greedy, pinned: Any, at: Any) -> Any:
    """Which snapshot makes room for that of step ``at``; where a stage begins, as if it had not yet."""
    if slots <= 2:
        return jnp.int32(slots - 1)
    distance = at - plan.positions[slots - 1]
    last = jnp.where(pinned[slots - 1], -jnp.inf, _last_gain(jnp, slots, plan.positions, distance))
    return jnp.where(last > plan.gain + _relief(slots, distance), slots - 1, plan.victim)


def _look_ahead(xp: Any, slots: int, plan: Greedy, at: Any) -> Greedy:
    """The plan with the next step to keep: the stage's own, or one that it pays to keep before."""
    target = _target(xp, slots, plan)
    if slots <= 1:
        return plan._replace(next=target)
    tables = _constants(slots)
    end = plan.positions[slots - 1]
    soon = xp.int32(NOWHERE)
    gain, victim = plan.gain, plan.victim
    if slots > 2:
        gain, victim = _gains(xp, slots, plan.positions, plan.pinned)
        enough = xp.sum(xp.asarray(tables["relief"]) <= -gain).astype(xp.int32)
        far = xp.ceil(1.25 * xp.sqrt(xp.maximum(-2.0 * gain, 1.0)))
        reached = xp.where(enough < _DISTANCES, enough, xp.minimum(far, 1e9).astype(xp.int32))
        soon = xp.where(xp.isfinite(gain), end + xp.maximum(reached, 1), NOWHERE)
    if slots < 5:
        distance = xp.arange(1, _LOOKAHEAD + 1)
        pays = _last_gain(xp, slots, plan.positions, distance) > 0
        first = xp.where(xp.any(pays), xp.argmax(pays) + 1, _LOOKAHEAD).astype(xp.int32)
        soon = xp.where(plan.pinned[slots - 1], soon, xp.minimum(soon, end + first))
    soon = xp.where(plan.used >= slots, xp.maximum(soon, at + 1), NOWHERE)
    return plan._replace(next=xp.minimum(target, soon), gain=gain, victim=victim)
