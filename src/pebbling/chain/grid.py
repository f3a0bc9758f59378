"""Sizes as whole numbers of one unit, which is what a dynamic programme over memory counts in.

Sizes that are multiples of a common unit (of 1, if they are whole numbers) stay exact as long as
the memory has at most ``units`` of it. Otherwise the memory is divided into ``units`` parts and
sizes are rounded up to them, so that whatever fits on the grid fits in truth, and more memory
never makes for a worse plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class Grid(NamedTuple):
    """A memory, and the sizes of the states and the tapes of the steps, in units."""

    memory: int
    state: tuple[int, ...]
    tape: tuple[int, ...]


def summable(sizes: Sequence[float], memory: float) -> tuple[float, ...]:
    """``sizes``, rounded up in the last bits so that their sums up to ``memory`` are exact."""
    last = math.ulp(memory)
    return tuple(size if size >= memory else math.ceil(size / last) * last for size in sizes)


def onto_grid(state: Sequence[float], tape: Sequence[float], memory: float, units: int) -> Grid:
    """The sizes on a grid, which has no units at all where every tape fits."""
    last, steps = Fraction(math.ulp(memory)), len(state)
    whole = int(Fraction(memory) / last)
    sizes = [math.ceil(size / last) for size in map(Fraction, (*state, *tape))]
    if sum(sizes[steps:-1]) <= whole:
        return Grid(0, (0,) * steps, (0,) * steps)
    common = math.gcd(*sizes) or 1
    parts, scale = (1, common) if whole // common <= units else (units, whole)
    counts = [-(-size * parts // scale) for size in sizes]
    return Grid(whole * parts // scale, tuple(counts[:steps]), tuple(counts[steps:]))


def even_grid(state: Sequence[float], tape: Sequence[float], memory: float, units: int) -> tuple[Grid, Fraction]:
    """The sizes rounded up to parts of the memory, exact where it is a whole number of at most ``units``; the unit."""
    unit = Fraction(1) if memory <= units and memory == int(memory) else Fraction(memory) / units
    counts = [[-(-Fraction(size) // unit) for size in sizes] for sizes in (state, tape)]
    return Grid(int(Fraction(memory) / unit), tuple(counts[0]), tuple(counts[1])), unit


def feasible(grid: Grid) -> bool:
    """Whether any plan fits: one that tapes some steps, and from there on keeps one state or none."""
    taped = 0
    for state, tape in zip(grid.state[:-1], grid.tape[:-1], strict=True):
        if taped + state <= grid.memory:
            return True
        taped += tape
    return taped <= grid.memory


def smallest(state: Sequence[float], tape: Sequence[float], memory: float, units: int) -> float:
    """The smallest memory with a plan, which is more than ``memory`` and at most the size of the first state."""
    low, high = memory, state[0]
    while low < (middle := low + (high - low) / 2) < high:
        if feasible(onto_grid(state, tape, middle, units)):
            high = middle
        else:
            low = middle
    return high
