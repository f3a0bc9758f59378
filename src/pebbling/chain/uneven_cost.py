"""Snapshots of equal size over steps of unequal cost: the fewest weighted advances.

The recurrence of binomial checkpointing (Griewank and Walther, ACM TOMS 26, 2000) with the cost of
each step in it. With W the sums of the costs, steps s … t-1 and c slots take
T_c(s, t) = min over j of W_j - W_s + T_c(s, j) + T_{c-1}(j, t) beyond the one taped run of each
step. The best j never falls when s or t grows (Knuth 1971, Yao 1980), so neighbouring spans bound
the search and the whole takes O(slots · steps²). Optimal among all plans that keep states alone.
It does not look for the fewest stores among plans of equal cost, and the quadratic table limits it
to some ten thousand steps.

Tables are indexed [slots, length of the span, first step], and hold T + W_t, which saves a lookup.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .choices import Choices, Solution, affordable
from .compiled import faster

_WORTH = 4e7  # cells from which on compiling takes less time than it saves
_CELLS = 1 << 25  # how many cells of the table to fill together


def solve(forward: Sequence[float], slots: int) -> Solution:
    """The cheapest plan, its value the weighted advances."""
    steps = len(forward)
    slots = min(slots, max(steps - 1, 1))
    dtype = np.int16 if steps < 1 << 15 else np.int32
    affordable((slots - 1) * steps**2 * np.dtype(dtype).itemsize // 2, f"{steps} steps and {slots} slots")
    prefix = np.concatenate([[0.0], np.cumsum(forward, dtype=float)])
    splits = np.empty((slots + 1, steps + 1, steps), dtype)
    layers = min(slots - 1, max(1, _CELLS // max(steps, 1) ** 2))
    values = np.empty((layers + 1, steps + 1, steps))
    _fill_one(prefix, values[0])
    fill, done = faster(_fill_loop, _fill, slots * steps**2, _WORTH), 1
    while done < slots:
        layers = min(layers, slots - done)
        fill(prefix, values[: layers + 1], splits[done + 1 : done + layers + 1], done + 1)
        values[0] = values[layers]
        done += layers
    value = float(values[0, steps, 0] - prefix[steps]) if steps else 0.0
    return Solution(slots, (1,) * steps, (), _choices(splits, steps, slots), value)


def _choices(splits: np.ndarray, steps: int, slots: int) -> Choices:
    """The advances of the spans that the plan consists of."""
    choices: Choices = {}
    stack = [(0, steps, slots)]
    while stack:
        start, length, room = stack.pop()
        if length > 1:
            split = int(splits[room, length, start]) if room > 1 else length - 1
            choices[start, length, room] = split
            stack += [(start + split, length - split, room - 1), (start, split, room)]
    return choices


def _fill_one(prefix: np.ndarray, values: np.ndarray) -> None:
    """The table for one slot: from the first state to each later one in turn."""
    steps = len(prefix) - 1
    values[1:2] = prefix[1:]
    for length in range(2, steps + 1):
        starts = steps - length + 1
        values[length, :starts] = values[length - 1, :starts] - prefix[:starts] + prefix[length:]


def _fill(prefix: np.ndarray, values: np.ndarray, splits: np.ndarray, first: int) -> None:
    """Tables for ``first`` slots and more, above the one for a slot less: all spans of one length at a time.

    The candidates of all spans lie in one long array, window after window.
    """
    steps = len(prefix) - 1
    cells, layer = values.reshape(-1), (steps + 1) * steps
    values[1:, 1:2] = prefix[1:]
    for length in range(2, steps + 1):
        starts = steps - length + 1
        short = min(max(length - 1 - first, 0), len(splits))  # from this layer on every step is advanced once
        values[short + 1 :, length, :starts] = prefix[length - 1 : steps] - prefix[:starts] + prefix[length:]
        splits[short:, length, :starts] = 1
        if not short:
            continue
        low = splits[:short, length - 1, :starts].ravel().astype(np.int64)
        widths = splits[:short, length - 1, 1 : starts + 1].ravel() - low + 2
        ends = np.cumsum(widths)
        begins = ends - widths
        split = np.arange(ends[-1]) + np.repeat(low - begins, widths)
        spans = (np.arange(1, short + 1)[:, None] * layer + np.arange(starts)).ravel()
        span, row = np.repeat(spans, widths), split * steps
        candidates = cells.take(span + row)
        candidates += cells.take(span + split - row + (length * steps - layer))
        best = np.minimum.reduceat(candidates, begins)
        found = np.where(candidates == np.repeat(best, widths), split, steps)
        splits[:short, length, :starts] = np.minimum.reduceat(found, begins).reshape(short, starts)
        values[1 : short + 1, length, :starts] = best.reshape(short, starts) - prefix[:starts]


def _fill_loop(prefix: np.ndarray, values: np.ndarray, splits: np.ndarray, first: int) -> None:
    """The same, span by span."""
    steps = len(prefix) - 1
    for layer in range(len(splits)):
        below, here, split = values[layer], values[layer + 1], splits[layer]
        for length in range(1, steps + 1):
            for start in range(steps - length + 1):
                stop = start + length
                if length == 1:
                    here[length, start] = prefix[stop]
                    continue
                if length - 1 <= first + layer:
                    here[length, start] = prefix[stop - 1] - prefix[start] + prefix[stop]
                    split[length, start] = 1
                    continue
                best, found = np.inf, 0
                for j in range(split[length - 1, start], split[length - 1, start + 1] + 2):
                    candidate = here[j, start] + below[length - j, start + j]
                    if candidate < best:
                        best, found = candidate, j
                here[length, start] = best - prefix[start]
                split[length, start] = found
