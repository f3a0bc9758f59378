"""Steps of unequal cost and size, kept as states or as tapes: the cheapest plan within a memory.

Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous
chains: how to train deep neural networks with limited memory" (Rotor, 2019). With F the costs of
the forward steps, f those of one, b of its reversal, x and y the sizes of its state and its tape,
steps s … t take
C(s, t, m) = min( f_s + C(s+1, t, m - y_s) + b_s, min over j of F_{s…j-1} + C(j, t, m - x_s) + C(s, j-1, m) ),
and a single step f_s + b_s with any memory: the working state and one working tape are free. Where steps need
room while they run (``working``), each of these takes a least m, and is infinitely dear below it.
Optimal among the plans that keep a state until the steps after it are reversed; plans that drop
it earlier for another can be a little cheaper where sizes differ a lot, and are not looked for.
Takes O(steps³ · memory).

The table holds H(s, t, m) = C(s, t, m) + F_{0…s-1} twice, at [s, t+1] and at [t, s], so that both
terms of the sum over j are consecutive rows, of the same indices: H(s, j-1) at [s, j], H(j, t) at [t, j].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .choices import Choices, Solution, affordable
from .compiled import faster
from .grid import Grid
from .working import Gates, open_gates

_WORTH = 4e9  # steps³ · memory from which on compiling takes less time than it saves
_ROWS = 8  # how many ends of spans to take together, so that rows are found in the cache


def solve(forward: Sequence[float], backward: Sequence[float], grid: Grid, gates: Gates | None = None) -> Solution:
    """The cheapest plan, its value the time of all steps; infinite if there is none."""
    steps, room = len(forward), grid.memory
    if gates is None and sum(grid.tape[:-1]) <= room:
        choices = {(0, steps, room): 1 - steps} if steps > 1 else {}
        return Solution(*grid, choices, sum(forward) + sum(backward))
    affordable(steps * (steps + 1) * (room + 1) * 8, f"{steps} steps and {room} units of memory")
    prefix, reversal = np.concatenate([[0.0], np.cumsum(forward)]), np.array(backward)
    state, tape = (np.array([min(size, room + 1) for size in sizes]) for sizes in (grid.state, grid.tape))
    table = np.empty((steps, steps + 1, room + 1))
    fill = faster(_fill_loop, _fill, steps**3 * room, _WORTH)
    gates = gates or open_gates(steps)
    fill(prefix, reversal, state, tape, gates, table)
    value = float(table[0, steps, room])
    return Solution(*grid, _choices(prefix, reversal, grid, gates, table) if value < np.inf else {}, value)


def _choices(prefix: np.ndarray, reversal: np.ndarray, grid: Grid, gates: Gates, table: np.ndarray) -> Choices:
    """The choices of the spans that the plan consists of, found again from the values around them."""

    def advance(start: int, stop: int, room: int) -> int:
        """How many steps to advance, or 0 to tape the first."""
        state, tape = grid.state[start], grid.tape[start]
        if state > room:
            return 0
        split = table[stop - 1, start + 1 : stop, room - state] + table[start, start + 1 : stop, room]
        split = np.where(gates.ahead[start, start + 1 : stop] + gates.behind[stop - 1] > room, np.inf, split)
        best = int(np.argmin(split))
        needed = max(tape, gates.record[start] + gates.behind[stop - 1], gates.back[start])
        taped = table[start + 1, stop, room - tape] + reversal[start] if needed <= room else np.inf
        return 0 if taped <= split[best] - prefix[start] else best + 1

    choices: Choices = {}
    stack = [(0, len(reversal), grid.memory)]
    while stack:
        start, length, room = stack.pop()
        first, stop, left, split = start, start + length, room, 0
        while stop - first > 1 and not (split := advance(first, stop, left)):
            left -= grid.tape[first]
            first += 1
        if first > start:
            choices[start, length, room] = start - first
            stack.append((first, stop - first, left))
        elif split:
            choices[start, length, room] = split
            stack += [(start + split, length - split, room - grid.state[start]), (start, split, room)]
    return choices


def _fill(
    prefix: np.ndarray,
    reversal: np.ndarray,
    state: np.ndarray,
    tape: np.ndarray,
    gates: Gates,
    table: np.ndarray,
) -> None:
    """The table, span by span, for every memory and split at a time."""
    steps, _, room = table.shape
    ahead, behind, record, back, turn = gates
    work, rooms, gated = np.empty((steps, room)), np.arange(room), bool(ahead.any() or behind.any())
    sizes = list(zip(state.tolist(), tape.tolist(), strict=True))
    for last in range(steps):
        table[last, last : last + 2] = np.where(rooms < turn[last], np.inf, prefix[last + 1] + reversal[last])
        for start in range(last - 1, -1, -1):
            kept, taped = sizes[start]
            row, splits = table[start, last + 1], work[: last - start, kept:]
            row[:kept] = np.inf
            np.add(table[last, start + 1 : last + 1, : room - kept], table[start, start + 1 : last + 1, kept:], splits)
            if gated:
                splits[rooms[kept:] < (ahead[start, start + 1 : last + 1] + behind[last])[:, None]] = np.inf
            np.minimum.reduce(splits, axis=0, out=row[kept:])
            row[kept:] -= prefix[start]
            least = min(max(taped, record[start] + behind[last], back[start]), room)
            tapings = table[start + 1, last + 1, least - taped : room - taped] + reversal[start]
            np.minimum(row[least:], tapings, out=row[least:])
            table[last, start] = row


def _fill_loop(
    prefix: np.ndarray,
    reversal: np.ndarray,
    state: np.ndarray,
    tape: np.ndarray,
    gates: Gates,
    table: np.ndarray,
) -> None:
    """The same, number by number."""
    steps, _, room = table.shape
    ahead, behind, record, back, turn = gates
    for first in range(0, steps, _ROWS):
        beyond = min(first + _ROWS, steps)
        for start in range(beyond - 1, -1, -1):
            kept, taped = state[start], tape[start]
            for last in range(max(first, start), beyond):
                row, copy = table[start, last + 1], table[last, start]
                for m in range(room):
                    row[m] = np.inf if start < last or m < turn[last] else prefix[last + 1] + reversal[last]
                for j in range(start + 1, last + 1):
                    right, left, best = table[last, j], table[start, j, kept:], row[kept:]
                    for m in range(max(0, ahead[start, j] + behind[last] - kept), room - kept):
                        best[m] = min(best[m], right[m] + left[m])
                if start < last:
                    for m in range(kept, room):
                        row[m] -= prefix[start]
                    for m in range(max(taped, record[start] + behind[last], back[start]), room):
                        row[m] = min(row[m], table[start + 1, last + 1, m - taped] + reversal[start])
                for m in range(room):
                    copy[m] = row[m]
