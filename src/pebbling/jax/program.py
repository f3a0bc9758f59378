"""The slots of all loops of a program, so that XLA's temporary memory for it stays within a budget.

XLA is asked, not guessed: the program is compiled with one slot for each loop, which is the least that it can take,
and once more with the slots that a model of its snapshots divides the rest into (``division``). Only where the model
was wrong, as it is for arrays that are spread over several devices, is it corrected by what was found and another
division tried. A program in which everything is kept is tried first, unless what its scans hand on can't fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..errors import BudgetError
from ..units import format_bytes, parse_bytes
from .division import Load, divide, equations, loads, stacked_bytes, total_cost
from .sites import Shares, Site

_TRIES = 3
_WORTH = 0.95
"""Another division must be expected to save so much of what is advanced again."""

Make = Callable[[Shares], Any]
"""Traces the program for a division: what ``jax.jit(f).trace(…)`` gives."""


def fit(make: Make, memory: float | str, what: str, *, part: bool = False) -> Shares:
    """The division with which the program, called ``what`` in errors, takes at most ``memory`` bytes.

    If what is made is only a part of what will be compiled, some room is left for what differs.
    """
    limit = parse_bytes(memory)
    temporary = _as_part if part else temporary_bytes
    whole = Shares(plain=True)
    traced = make(whole)
    plain: int | None = None
    # Loops of unknown length have no plain form.
    if not loads(traced.jaxpr) and stacked_bytes(traced.jaxpr) <= limit:
        plain = temporary(traced)
        if plain <= limit:
            return whole
    traced = make(Shares())
    found = loads(traced.jaxpr)
    least = temporary(traced) if found or plain is None else plain
    if least > limit:
        raise _too_little(memory, limit, what, least if plain is None else min(least, plain), found, traced.jaxpr)
    if not found:
        return Shares()
    most = {site: load.most for site, load in found.items()}
    return _largest(lambda division: temporary(make(division)), found, least, limit).bounded(most)


def _largest(taken_by: Callable[[Shares], int], found: dict[Site, Load], least: int, limit: int) -> Shares:
    """The best division that was seen to fit."""
    best, saved = Shares(), dict.fromkeys(found, 1)
    scale = 1.0  # bytes that XLA takes for one of the model
    for _ in range(_TRIES):
        slots = divide(found, (limit - least) / scale)
        if total_cost(found, slots) >= _WORTH * total_cost(found, saved) and best.slots:
            break
        grown = sum((slots[site] - 1) * load.bytes for site, load in found.items())
        if not grown:
            break
        tried = Shares(tuple(sorted(slots.items(), key=lambda pair: str(pair[0]))))
        taken = taken_by(tried) - least
        if least + taken <= limit:
            best, saved = tried, slots
        scale = max(1.0001 * taken / grown, 1e-3)
    return best


def temporary_bytes(traced: Any) -> int:
    """XLA's temporary memory for a traced program, on each device."""
    # What LLVM does to the code of a CPU has no influence on the buffers.
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    found = traced.lower().compile(compiler_options=options).memory_analysis()
    return int(found.temp_size_in_bytes) if found is not None else 0


def _as_part(traced: Any) -> int:
    """The same within a larger program, where buffers are packed a little otherwise."""
    found = temporary_bytes(traced)
    return found + found // 64 + 512


def _too_little(
    memory: float | str, limit: int, what: str, least: int, found: dict[Site, Load], jaxpr: Any
) -> BudgetError:
    asked = (
        f"memory={memory!r} is {format_bytes(limit)}, and {what} takes at least {format_bytes(least)} ({least} bytes)"
    )
    if not found:
        fixed = any(eqn.primitive.name.startswith("checkpointed_") for eqn in equations(jaxpr))
        why = (
            "all its loops have slots or schedules of their own: leave those out, and they are planned with it"
            if fixed
            else "no loop in it is one of pebbling's: wrap the function in checkpoint_loops before it is differentiated"
        )
        return BudgetError(f"{asked}: {why}", minimum=least)
    snapshots = sum(load.bytes for load in found.values())
    loops = "its loop" if len(found) == 1 else f"each of its {len(found)} loops"
    listed = "; ".join(f"{site}: {format_bytes(load.bytes)} a snapshot" for site, load in found.items())
    return BudgetError(
        f"{asked}, with one snapshot for {loops}, {format_bytes(snapshots)} in all ({listed}); "
        f"the rest, {format_bytes(max(0, least - snapshots))}, is what the program takes besides",
        minimum=least,
    )
