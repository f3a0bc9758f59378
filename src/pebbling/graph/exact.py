"""The optimum for small graphs: a search over all states, best first.

A* (Hart, Nilsson and Raphael, 1968) over pairs of sets: the nodes that have run, and the storages that
are there; the time of what has not run yet is what is certainly still to come. Replays, replays of
replays and every order are in it, so what it finds is optimal under the rules of ``check``. The number
of states grows exponentially: it gives up after so many, and is of use up to some 20 nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from .indexed import Indexed
from .plan import Compute, Free, Step

State = tuple[int, int]
"""Nodes that have run and storages that are there, as bits."""


def exact(graph: Indexed, budget: int, states: int, hurry: float = 1.0) -> tuple[float, list[Step]] | None:
    """Least time and its steps; ``(inf, [])`` if no plan fits; ``None`` if so many states don't settle it.

    With ``hurry`` above 1, states near the end come first: some plan is found sooner, and not the fastest.
    """
    game = _Game(graph, budget)
    start: State = (0, 0)
    best: dict[State, float] = {start: 0.0}
    came: dict[State, tuple[State, int]] = {}
    closed: set[State] = set()
    heap: list[tuple[float, int, State]] = [(game.to_come(0), 0, start)]
    pushed = 0
    while heap:
        _, _, state = heapq.heappop(heap)
        if state in closed:
            continue
        closed.add(state)
        if state[0] == game.all:
            return best[state], game.steps(state, came)
        if len(closed) > states:
            return None
        for move, following, price in game.moves(state):
            time = best[state] + price
            if time < best.get(following, float("inf")) - 1e-15:
                best[following] = time
                came[following] = state, move
                pushed += 1
                heapq.heappush(heap, (time + hurry * game.to_come(following[0]), pushed, following))
    return float("inf"), []


class _Game:
    """The moves: node n as n, freeing storage s as -1 - s."""

    def __init__(self, graph: Indexed, budget: int) -> None:
        self.graph, self.budget = graph, budget
        count = len(graph.time)
        self.all = (1 << count) - 1
        self.time = graph.time.tolist()
        self.size = graph.size.tolist()
        self.reads = [_bits(graph.reads_of(n)) for n in range(count)]
        self.makes = [_bits(graph.makes_of(n)) for n in range(count)]
        self.takes = [int(graph.workspace[n] + graph.size[graph.makes_of(n)].sum()) for n in range(count)]
        self.before = [_bits(graph.before[n]) for n in range(count)]
        again = [node.replayable and not node.backward for node in graph.graph.nodes]
        self.again = [n for n in range(count) if again[n]]
        self.once = [n for n in range(count) if not again[n]]
        self.fixed = _bits([s for s in range(len(self.size)) if graph.fixed[s]])

    def to_come(self, ran: int) -> float:
        """Time of the nodes that have not run."""
        return sum(time for node, time in enumerate(self.time) if not ran >> node & 1)

    def moves(self, state: State) -> list[tuple[int, State, float]]:
        """All runs that fit; and, where one does not, all that could be freed for it."""
        ran, there = state
        held = sum(size for storage, size in enumerate(self.size) if there >> storage & 1)
        found: list[tuple[int, State, float]] = []
        short = False
        for node in range(len(self.time)):
            if ran >> node & 1 and (node in self.once or not self.makes[node] & ~there):
                continue
            if self.reads[node] & ~there or self.before[node] & ~ran:
                continue
            if held + self.takes[node] > self.budget:
                short = True
                continue
            found.append((node, (ran | 1 << node, there | self.makes[node]), self.time[node]))
        if short:
            for storage in range(len(self.size)):
                if there >> storage & 1 and not self.fixed >> storage & 1:
                    found.append((-1 - storage, (ran, there & ~(1 << storage)), 0.0))
        return found

    def steps(self, state: State, came: dict[State, tuple[State, int]]) -> list[Step]:
        """The way to a state, and what is left freed."""
        moves: list[int] = []
        left = [s for s in range(len(self.size)) if state[1] >> s & 1 and not self.fixed >> s & 1]
        while state in came:
            state, move = came[state]
            moves.append(move)
        names = [node.name for node in self.graph.graph.nodes]
        steps: list[Step] = []
        for move in reversed(moves):
            steps.append(Compute(names[move]) if move >= 0 else Free(self.graph.names[-1 - move]))
        return steps + [Free(self.graph.names[storage]) for storage in left]


def _bits(positions: Iterable[int]) -> int:
    bits = 0
    for position in positions:
        bits |= 1 << int(position)
    return bits
