"""The forward pass as a chain of blocks, and the best way to reverse such a chain in so many bytes.

Cuts are where few bytes cross from earlier forward nodes to later ones. Between them the blocks form
a chain of unequal steps, for which the dynamic programme of Rotor (Beaumont et al., 2019) is optimal:
in every sweep over a span, either the first block keeps what its backward pass reads, or the sweep
goes on to a later cut and keeps what crosses there. A block may keep all that is read, or in several
degrees less of it, what is cheap to make again being left to its turn, as in Rockmate (Zhao et al.,
2023). Bytes are counted in levels, and what else
is alive during the backward pass is not counted at all, so that its plans are starts for the greedy
repair, for several shares of the budget, and not results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from .board import Board, KeptLine
from .indexed import Floats, Indexed, Ints

_BLOCKS = 56
_LEVELS = 160
_MODES = 6
_LONG = 500
"""Storages of a block, squared, for each one that is dropped at a time."""
_SHARES = (1.0, 0.86, 0.66, 0.5)
_FINE = tuple(1.0 - 0.06 * i for i in range(14))
"""Shares of the budget that plans are made for: of large graphs, whose repair takes a while, and of others."""


@dataclass(frozen=True, eq=False)
class BlockChain:
    """Cuts as positions in the order; for each block its time, the bytes that enter it and those of its tape."""

    graph: Indexed
    order: Ints
    cuts: tuple[int, ...]
    time: Floats
    enters: Ints
    tape: Ints
    crossing: tuple[Ints, ...]
    """Storages that enter each block."""
    taped: tuple[Ints, ...]
    """Storages that each block makes and its backward pass reads, what enters the next one left out."""

    @cached_property
    def narrow(self) -> tuple[int, ...]:
        """Cuts that at most a twentieth of what the forward pass saves crosses."""
        saved = sum(
            int(self.graph.size[s]) for s, (_, _, later) in enumerate(self.uses) if later and self.graph.movable[s]
        )
        inner = zip(self.cuts[1:-1], self.enters[1:], strict=True)
        return tuple(cut for cut, entering in inner if 20 * int(entering) <= saved)

    @property
    def is_chain(self) -> bool:
        """Whether three narrow cuts or more divide the forward pass."""
        return len(self.narrow) >= 3

    @cached_property
    def uses(self) -> list[tuple[int, int, list[int]]]:
        """Last event before the backward pass, its position, and positions of the uses after it, of each storage."""
        graph = self.graph
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(self.order))
        found: list[tuple[int, int, list[int]]] = []
        makers = {int(s): len(graph.reads) + j for j, s in enumerate(graph.makes)}
        reads: list[list[tuple[int, int, int]]] = [[] for _ in graph.size]
        for node in range(len(self.order)):
            for i in range(graph.read_at[node], graph.read_at[node + 1]):
                reads[graph.reads[i]].append((int(rank[node]), i, node))
        for storage in range(len(graph.size)):
            event, at = makers[storage], int(rank[graph.maker[storage]])
            later = []
            for position, i, node in sorted(reads[storage]):
                if graph.backward[node]:
                    later.append(position)
                elif not later:
                    event, at = i, position
            found.append((event, at, later))
        return found


def chain(graph: Indexed, order: Ints, blocks: int = _BLOCKS) -> BlockChain:
    """The chain of blocks along the forward pass of an order."""
    last = int(np.flatnonzero(graph.early[order])[-1]) + 1 if graph.early.any() else 0
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    ends = np.zeros(len(graph.size), np.int64)
    saved = np.zeros(len(graph.size), np.bool_)
    for storage, readers in enumerate(graph.readers):
        inside = [int(rank[r]) for r in readers if not graph.backward[r] and rank[r] < last]
        ends[storage] = max(inside, default=-1)
        saved[storage] = any(graph.backward[r] for r in readers)
    begins = rank[graph.maker]
    crosses = [
        graph.movable & (begins < cut) & (ends >= cut) if 0 < cut < last else np.zeros(len(ends), np.bool_)
        for cut in range(last + 1)
    ]
    bytes_at = np.array([graph.size[mask].sum() for mask in crosses])
    passed = np.concatenate([[0.0], np.cumsum(graph.time[order[:last]])])
    cuts = _cuts(bytes_at, passed, blocks)
    crossing = tuple(np.flatnonzero(crosses[cut]) for cut in cuts[:-1])
    taped = []
    for i, (start, stop) in enumerate(pairwise(cuts)):
        mine = graph.movable & saved & (begins >= start) & (begins < stop)
        if i + 1 < len(crossing):
            mine[crossing[i + 1]] = False
        taped.append(np.flatnonzero(mine))
    return BlockChain(
        graph,
        order,
        tuple(cuts),
        np.diff(passed[cuts]),
        np.array([graph.size[some].sum() for some in crossing], np.int64),
        np.array([graph.size[some].sum() for some in taped], np.int64),
        crossing,
        tuple(taped),
    )


def _cuts(bytes_at: Ints, passed: Floats, blocks: int) -> list[int]:
    """Ends of the pass and the narrowest places between, not too near to each other in time."""
    last = len(bytes_at) - 1
    chosen = [0, last]
    apart = passed[-1] / (1.6 * blocks)
    for cut in np.argsort(bytes_at, kind="stable"):
        if len(chosen) > blocks:
            break
        if all(abs(passed[cut] - passed[other]) >= apart and cut != other for other in chosen):
            chosen.append(int(cut))
    return sorted(set(chosen))


@dataclass(frozen=True, eq=False)
class Mode:
    """One way to tape a block: what is kept, its bytes, and the time to make the rest again at its turn."""

    kept: frozenset[int]
    bytes: int
    extra: float


def modes(links: BlockChain, block: int) -> list[Mode]:
    """Ways to tape a block, from all that is read to nothing, dropping what is cheapest for its bytes first."""
    graph = links.graph
    inside = set(links.order[links.cuts[block] : links.cuts[block + 1]].tolist())

    def extra(kept: frozenset[int]) -> float:
        wanted = {int(graph.maker[s]) for s in links.taped[block] if int(s) not in kept}
        stack = list(wanted)
        while stack:
            for read in graph.reads_of(stack.pop()).tolist():
                maker = int(graph.maker[read])
                if graph.movable[read] and read not in kept and maker in inside and maker not in wanted:
                    wanted.add(maker)
                    stack.append(maker)
        return float(graph.time[list(wanted)].sum())

    kept = frozenset(links.taped[block].tolist())
    found = [Mode(kept, int(links.tape[block]), 0.0)]
    while kept:
        prices = {s: extra(kept - {s}) for s in kept}
        worth = {s: (prices[s] - found[-1].extra) / max(int(graph.size[s]), 1) for s in kept}
        # Pricing all that is kept anew for each one dropped would take minutes in long blocks.
        drop = sorted(kept, key=lambda s: (worth[s], s))[: max(1, len(kept) ** 2 // _LONG)]
        kept = kept - set(drop)
        price = prices[drop[0]] if len(drop) == 1 else extra(kept)
        found.append(Mode(kept, found[-1].bytes - int(graph.size[drop].sum()), price))
    spaced = np.linspace(0, found[0].bytes, _MODES)
    sizes = np.array([mode.bytes for mode in found])
    return [found[i] for i in dict.fromkeys(int(np.argmin(np.abs(sizes - at))) for at in spaced)]


def reversals(board: Board, links: BlockChain) -> Iterator[KeptLine]:
    """Plans from the dynamic programme, for several shares of the budget; they may break it."""
    count = len(links.time)
    if count < 2:
        return
    ways = [modes(links, block) for block in range(count)]
    # What enters the next block stays with the tape, since that block is reversed from it; plans that leave it
    # out are too optimistic, but good starts where the forward pass saves it anyway.
    shares = _SHARES if len(links.order) > 1000 else _FINE
    for following in ([*links.enters[1:], 0], [0] * count):
        yield from _reversals(board, links, ways, following, shares)


def _reversals(
    board: Board, links: BlockChain, ways: list[list[Mode]], following: list[int], shares: tuple[float, ...]
) -> Iterator[KeptLine]:
    level = max(board.budget, 1) / _LEVELS
    count = len(links.time)
    enters = np.ceil(links.enters / level).astype(np.int64)
    levels = [[int(np.ceil((mode.bytes + following[i]) / level)) for mode in some] for i, some in enumerate(ways)]
    table, choice = _table(links.time, enters, levels, [[mode.extra for mode in some] for some in ways])
    before: object = None
    for share in shares:
        top = int(share * _LEVELS)
        if not np.isfinite(table[0, count - 1, top]):
            continue
        tapes, entries = _sweeps(choice, enters, levels, count, top)
        if (tapes, entries) != before:
            before = tapes, entries
            kept = {block: ways[block][mode].kept for block, (_, mode) in tapes.items()}
            yield _line(board, links, {block: turn for block, (turn, _) in tapes.items()}, kept, entries)


def _table(time: Floats, enters: Ints, tapes: list[list[int]], extra: list[list[float]]) -> tuple[Floats, Ints]:
    """Least forward time to reverse each span in each amount, and how: -1 - m tapes its first block in mode m."""
    count = len(time)
    table = np.full((count, count, _LEVELS + 1), np.inf)
    choice = np.zeros((count, count, _LEVELS + 1), np.int64)
    passed = np.concatenate([[0.0], np.cumsum(time)])
    for stop in range(count):
        for start in range(stop, -1, -1):
            best = table[start, stop]
            took = choice[start, stop]
            rest = table[start + 1, stop] if start < stop else np.zeros(_LEVELS + 1)
            for mode, (tape, more) in enumerate(zip(tapes[start], extra[start], strict=True)):
                if tape <= _LEVELS:
                    price = np.full(_LEVELS + 1, np.inf)
                    price[tape:] = time[start] + more + rest[: _LEVELS + 1 - tape]
                    _better(best, took, price, -1 - mode)
            for cut in range(start + 1, stop + 1):
                if enters[cut] <= _LEVELS:
                    price = np.full(_LEVELS + 1, np.inf)
                    price[enters[cut] :] = table[cut, stop, : _LEVELS + 1 - enters[cut]]
                    price += passed[cut] - passed[start] + table[start, cut - 1]
                    _better(best, took, price, cut)
    return table, choice


def _better(best: Floats, took: Ints, price: Floats, choice: int) -> None:
    better = price < best - 1e-15
    best[better] = price[better]
    took[better] = choice


def _sweeps(
    choice: Ints, enters: Ints, levels: list[list[int]], count: int, top: int
) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
    """For each block, at whose turn it is taped for good and in which mode; and when what enters it is held.

    Turns are counted by the block that has just been reversed; ``count`` is the first sweep.
    """
    tapes: dict[int, tuple[int, int]] = {}
    entries: dict[int, int] = {}
    stack = [(0, count - 1, top, count)]
    while stack:
        start, stop, left, turn = stack.pop()
        if start > stop:
            continue
        cut = int(choice[start, stop, left])
        if cut < 0:
            tapes[start] = turn, -1 - cut
            stack.append((start + 1, stop, left - levels[start][-1 - cut], turn))
        elif cut > 0:
            entries[cut] = turn
            stack.append((cut, stop, left - int(enters[cut]), turn))
            stack.append((start, cut - 1, left, cut))
    return tapes, entries


def _line(
    board: Board, links: BlockChain, tapes: dict[int, int], kept: dict[int, frozenset[int]], entries: dict[int, int]
) -> KeptLine:
    graph, count = links.graph, len(links.time)
    line = board.everything(links.order)
    turns = _turns(links)
    position = [*turns, 0]
    for storage in np.flatnonzero(graph.movable):
        event, _, _ = links.uses[storage]
        line.keep[event] = False
        line.hold[event] = len(links.order)
    for block in range(count):
        for storage in links.taped[block]:
            event = links.uses[storage][0]
            turn = tapes[block] if int(storage) in kept.get(block, ()) else block
            line.keep[event] = turn == count
            line.hold[event] = 0 if turn == count else min(position[turn], turns[block])
        for storage in links.crossing[block] if block else ():
            event = links.uses[storage][0]
            turn = entries.get(block, tapes.get(block - 1, block))
            line.keep[event] |= turn == count
            line.hold[event] = min(line.hold[event], 0 if turn == count else min(position[turn], turns[block]))
    return line


def _turns(links: BlockChain) -> list[int]:
    """Where in the order the backward pass of each block begins, roughly: between its readers and the next one's."""
    middle: list[float] = []
    for block in range(len(links.time)):
        readers = [p for storage in links.taped[block] for p in links.uses[storage][2]]
        middle.append(float(np.median(readers)) if readers else np.nan)
    following = float(len(links.order))
    for block in range(len(middle)):
        if np.isnan(middle[block]):
            middle[block] = following
        following = middle[block]
    begins = [int((middle[block] + middle[block + 1]) / 2) for block in range(len(middle) - 1)]
    return [*begins, 0]
