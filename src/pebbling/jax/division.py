"""A model of what the snapshots of a program's loops take and save, and the best division of memory among them.

The program is a jaxpr in which all derivatives and batches are done. Each loop has snapshots of one or more
sizes in it (a second derivative keeps those of the values and of the tangents): so many bytes for each slot more,
which holds for XLA's temporary memory as well, as snapshots of one loop live while those of the next are made.
What a slot saves is steps advanced again, by the closed form, times the operations of a step.

The division minimizes the sum of what is advanced again, by Lagrange's multiplier: each loop alone takes the
number of slots that is best at a price for a byte, and the price is found by bisection. Within one slot of one
loop that is the optimum, for the closed form is convex in the number of slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..chain import binomial
from . import compat
from .masks import parts, pick
from .primitives import counted
from .sites import Site

_ASSUMED = 1000
"""The number of steps of a loop of unknown length, for the division."""
MOST_ONLINE = 512
"""The most slots of a loop of unknown length: its plan takes room as well."""
_TRANSCENDENTAL = frozenset(("exp", "log", "sin", "cos", "tanh", "logistic", "pow", "erf", "sqrt", "rsqrt", "div"))


@dataclass
class Load:
    """What one slot more of a loop takes, and what a step of it costs, summed over all places where it occurs."""

    bytes: int = 0
    most: int = 0  # of one of those places
    work: float = 0.0

    def cost(self, site: Site, slots: int) -> float:
        steps = site.steps or _ASSUMED
        return self.work * _advances(steps, slots)


@lru_cache(1 << 16)
def _advances(steps: int, slots: int) -> int:
    return binomial.advances(steps, slots)


def loads(jaxpr: Any) -> dict[Site, Load]:
    """The loops of a program that are planned with it."""
    found: dict[Site, Load] = {}
    _collect(jaxpr, 1, 1, found)
    return {site: load for site, load in found.items() if load.bytes}


def _collect(jaxpr: Any, times: float, copies: int, found: dict[Site, Load]) -> None:
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        plan, length = params.get("plan"), params.get("length")
        turns = times * (length or _ASSUMED) if name.startswith("checkpointed_") or name == "scan" else times
        if plan is not None and plan.site is not None:
            load = found.setdefault(plan.site, Load())
            size = snapshot_bytes(eqn)
            load.bytes += copies * size
            load.most = max(load.most, size, way_back_bytes(eqn))
            if name == "checkpointed_reverse":
                load.work += times * _work(params["step"].jaxpr)
        # What a plain scan keeps of the loops inside it is kept for each of its steps.
        inner_copies = copies * (length or 1) if name == "scan" else copies
        for inner in compat.inner_jaxprs(eqn):
            _collect(inner, turns, inner_copies, found)


def snapshot_bytes(eqn: Any) -> int:
    """The bytes of a slot that an equation makes room for."""
    params, name = eqn.params, eqn.primitive.name
    if name == "checkpointed_reverse":
        if params["sizes"][3]:
            return 0
        first, sizes = counted(params["length"]), params["sizes"]
        _, _, state, _ = parts([v.aval for v in eqn.invars], [first, sizes[0], sizes[1]])
        return sum(map(compat.nbytes, state))
    store = params["store"]
    return sum(map(compat.nbytes, pick(store, params["body"].out_avals[: len(store)])))


def way_back_bytes(eqn: Any) -> int:
    """The bytes of a state on the way back, and of what is carried with it."""
    step, back = eqn.params.get("step"), eqn.params.get("back")
    if step is None:
        return 0
    return sum(map(compat.nbytes, [*step.out_avals, *back.out_avals[: eqn.params["sizes"][4]]]))


def _work(jaxpr: Any) -> float:
    """Operations on numbers, about, as XLA counts time: matrix products are quick, transcendental functions slow."""
    return 1.0 + sum(_work_of(eqn) for eqn in jaxpr.eqns)


def _work_of(eqn: Any) -> float:
    name, params = eqn.primitive.name, eqn.params
    inner = sum(_work(j) for j in compat.inner_jaxprs(eqn))
    if inner:
        return inner * (params.get("length") or (_ASSUMED if "while" in name else 1))
    size = float(sum(math.prod(v.aval.shape) for v in eqn.outvars))
    if name == "dot_general":
        contracted = params["dimension_numbers"][0][0]
        return size * math.prod(eqn.invars[0].aval.shape[d] for d in contracted) / 8
    return size * (10 if name in _TRANSCENDENTAL else 1)


def _choices(site: Site) -> list[int]:
    """Numbers of slots worth trying: all small ones, then at most 1 % apart."""
    most = MOST_ONLINE if site.steps is None else max(1, site.steps - 1)
    found = np.unique(np.concatenate([np.arange(1, 201), np.geomspace(1, most, 800).astype(int)]))
    return [int(c) for c in found[found <= most]]


def divide(found: dict[Site, Load], room: float) -> dict[Site, int]:
    """The numbers of slots, of one each on, whose snapshots fit ``room`` more bytes, for the least that is advanced."""
    curves = {}
    for site, load in found.items():
        choices = np.array(_choices(site))
        costs = np.array([load.cost(site, int(c)) for c in choices])
        curves[site] = choices, costs, (choices - 1.0) * load.bytes

    def at(price: float) -> dict[Site, int]:
        return {site: int(np.argmin(costs + price * sizes)) for site, (_, costs, sizes) in curves.items()}

    def size(picked: dict[Site, int]) -> float:
        return float(sum(curves[site][2][k] for site, k in picked.items()))

    low, high = 1e-12, 1e12
    best = at(high)
    if size(at(0.0)) <= room:
        best = at(0.0)
    else:
        for _ in range(100):
            price = math.sqrt(low * high)
            picked = at(price)
            low, high = (low, price) if size(picked) <= room else (price, high)
            best = picked if size(picked) <= room else best
    best = _fill(best, curves, room - size(best))
    return {site: int(curves[site][0][k]) for site, k in best.items()}


def _fill(best: dict[Site, int], curves: dict[Site, Any], rest: float) -> dict[Site, int]:
    """What is left goes to whom it helps most."""
    best = dict(best)
    for site in sorted(best, key=lambda s: -float(curves[s][1][best[s]])):
        _, costs, sizes = curves[site]
        k = int(np.searchsorted(sizes, sizes[best[site]] + rest, side="right")) - 1
        if k > best[site] and costs[k] < costs[best[site]]:
            rest -= float(sizes[k] - sizes[best[site]])
            best[site] = k
    return best


def total_cost(found: dict[Site, Load], slots: dict[Site, int]) -> float:
    """What is advanced again, over all loops."""
    return sum(load.cost(site, slots.get(site, 1)) for site, load in found.items())


def stacked_bytes(jaxpr: Any) -> int:
    """At least so many bytes a program takes for what its plain scans hand out step by step and others take in."""
    ends: dict[Any, int] = {}
    for k, eqn in enumerate(jaxpr.eqns):
        ends |= {v: k for v in eqn.invars if compat.is_variable(v)}
    results = set(filter(compat.is_variable, jaxpr.outvars))
    held: dict[Any, int] = {}
    peak = 0
    for k, eqn in enumerate(jaxpr.eqns):
        inside = max((stacked_bytes(j) for j in compat.inner_jaxprs(eqn)), default=0)
        if eqn.primitive.name == "scan":
            held |= {v: compat.nbytes(v.aval) for v in _stacks(eqn) if v in ends and v not in results}
        peak = max(peak, sum(held.values()) + inside)
        held = {v: size for v, size in held.items() if ends[v] > k}
    return peak


def _stacks(eqn: Any) -> Sequence[Any]:
    return eqn.outvars[compat.scan_sizes(eqn)[1] :]


def floating(avals: Sequence[Any]) -> list[bool]:
    """Which types can be differentiated."""
    return [bool(jnp.issubdtype(a.dtype, np.inexact)) for a in avals]


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those inside others included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in compat.inner_jaxprs(eqn):
            yield from equations(inner)
