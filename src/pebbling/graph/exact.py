"""The optimum for small graphs: a search over all states, best first.

A* (Hart, Nilsson and Raphael, 1968) over three sets: the nodes that have run, the storages that are
there, and those that are on the host. The time of what has not run yet, and of the copies back, is what
is certainly still to come. Replays, replays of replays, copies and every order are in it, so what it
finds is optimal under the rules of ``check``. The number of states grows exponentially: it gives up after
so many, and is of use up to some 20 nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from .indexed import Indexed
from .plan import Compute, Fetch, Free, Offload, Step

State = tuple[int, int, int]
"""Nodes that have run, storages that are there and storages on the host, as bits."""


def exact(graph: Indexed, budget: int, states: int, hurry: float = 1.0) -> tuple[float, list[Step]] | None:
    """Least time and its steps; ``(inf, [])`` if no plan fits; ``None`` if so many states don't settle it.

    With ``hurry`` above 1, states near the end come first: some plan is found sooner, and not the fastest.
    """
    game = _Game(graph, budget)
    start: State = (0, 0, 0)
    best: dict[State, float] = {start: 0.0}
    came: dict[State, tuple[State, Step]] = {}
    closed: set[State] = set()
    heap: list[tuple[float, int, State]] = [(game.to_come(start), 0, start)]
    pushed = 0
    while heap:
        _, _, state = heapq.heappop(heap)
        if state in closed:
            continue
        closed.add(state)
        if state[0] == game.all and not state[2]:
            return best[state], game.steps(state, came)
        if len(closed) > states:
            return None
        for move, following, price in game.moves(state):
            time = best[state] + price
            if time < best.get(following, float("inf")) - 1e-15:
                best[following] = time
                came[following] = state, move
                pushed += 1
                heapq.heappush(heap, (time + hurry * game.to_come(following), pushed, following))
    return float("inf"), []


class _Game:
    """The moves, and what they take."""

    def __init__(self, graph: Indexed, budget: int) -> None:
        self.graph, self.budget = graph, budget
        count = len(graph.time)
        self.names = [node.name for node in graph.graph.nodes]
        self.all = (1 << count) - 1
        self.time = graph.time.tolist()
        self.size = graph.size.tolist()
        self.copy = (graph.trip / 2).tolist()
        self.reads = [_bits(graph.reads_of(n)) for n in range(count)]
        self.makes = [_bits(graph.makes_of(n)) for n in range(count)]
        self.takes = [int(graph.workspace[n] + graph.size[graph.makes_of(n)].sum()) for n in range(count)]
        self.before = [_bits(graph.before[n]) for n in range(count)]
        again = [node.replayable and not node.backward for node in graph.graph.nodes]
        self.once = [n for n in range(count) if not again[n]]
        self.fixed = _bits([s for s in range(len(self.size)) if graph.fixed[s]])

    def to_come(self, state: State) -> float:
        """Time of the nodes that have not run, and of the copies of what is on the host."""
        ran, _, away = state
        runs = sum(time for node, time in enumerate(self.time) if not ran >> node & 1)
        return runs + sum(copy for storage, copy in enumerate(self.copy) if away >> storage & 1) if away else runs

    def moves(self, state: State) -> list[tuple[Step, State, float]]:
        """All runs and fetches that fit; and, where one does not, all that could be freed or offloaded for it."""
        ran, there, away = state
        held = self._bytes(there)
        found: list[tuple[Step, State, float]] = []
        short = False
        for node in range(len(self.time)):
            if ran >> node & 1 and (node in self.once or not self.makes[node] & ~there & ~away):
                continue
            if self.reads[node] & ~there or self.before[node] & ~ran:
                continue
            if held + self.takes[node] > self.budget:
                short = True
                continue
            after = ran | 1 << node, there | self.makes[node] & ~away, away
            found.append((Compute(self.names[node]), after, self.time[node]))
        for storage in range(len(self.size)) if away else ():
            if away >> storage & 1:
                if held + self.size[storage] > self.budget:
                    short = True
                    continue
                after = ran, there | 1 << storage, away & ~(1 << storage)
                found.append((Fetch(self.graph.names[storage]), after, self.copy[storage]))
        return found + self._room(state) if short else found

    def _room(self, state: State) -> list[tuple[Step, State, float]]:
        ran, there, away = state
        left = self.graph.host - self._bytes(away)
        found: list[tuple[Step, State, float]] = []
        for storage in range(len(self.size)):
            if there >> storage & 1 and not self.fixed >> storage & 1:
                rest = there & ~(1 << storage)
                found.append((Free(self.graph.names[storage]), (ran, rest, away), 0.0))
                if 0 < self.size[storage] <= left and self.copy[storage] < float("inf"):
                    after = ran, rest, away | 1 << storage
                    found.append((Offload(self.graph.names[storage]), after, self.copy[storage]))
        return found

    def _bytes(self, storages: int) -> int:
        return sum(size for storage, size in enumerate(self.size) if storages >> storage & 1)

    def steps(self, state: State, came: dict[State, tuple[State, Step]]) -> list[Step]:
        """The way to a state, and what is left freed."""
        steps: list[Step] = []
        left = [s for s in range(len(self.size)) if state[1] >> s & 1 and not self.fixed >> s & 1]
        while state in came:
            state, move = came[state]
            steps.append(move)
        return steps[::-1] + [Free(self.graph.names[storage]) for storage in left]


def _bits(positions: Iterable[int]) -> int:
    bits = 0
    for position in positions:
        bits |= 1 << int(position)
    return bits
