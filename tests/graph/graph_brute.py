"""Small random graphs, and the plain search over all plans that the solvers are held against."""

from __future__ import annotations

import heapq
from itertools import chain

import numpy as np

from pebbling.graph import Graph, Node, Storage


def least_time(graph: Graph, budget: float, host: float = 0, transfer: float = 1.0) -> float:
    """Least time of any plan within a budget, by Dijkstra's algorithm over all states; infinite if there is none.

    A state is what has run, what is here and what is on the host. Shares nothing with the solvers but the rules.
    """
    size = {storage.name: storage.bytes for node in graph.nodes for storage in node.makes}
    held = frozenset(storage.name for storage in graph.inputs)
    outputs = frozenset(graph.outputs) - held
    forward_outputs = frozenset(o for o in outputs if not graph.maker[o].backward)
    start = frozenset(), frozenset(), frozenset()
    times = {start: 0.0}
    heap = [(0.0, 0, start)]
    count = 0
    while heap:
        time, _, state = heapq.heappop(heap)
        if time > times[state]:
            continue
        ran, there, away = state
        if len(ran) == len(graph.nodes) and not away:
            return time
        taken, parked = sum(size[name] for name in there), sum(size[name] for name in away)
        following = [(time, (ran, there - {name}, away)) for name in there - outputs]
        for name in there - outputs:
            if 0 < size[name] <= host - parked:
                following.append((time + size[name] / transfer, (ran, there - {name}, away | {name})))
        for name in away:
            if taken + size[name] <= budget:
                following.append((time + size[name] / transfer, (ran, there | {name}, away - {name})))
        for node in graph.nodes:
            if node.name in ran and (node.backward or not node.replayable):
                continue
            if not set(node.reads) <= there | held or not set(node.after) <= ran:
                continue
            if node.backward and not forward_outputs <= there:
                continue
            if taken + node.bytes + node.workspace <= budget:
                made = {storage.name for storage in node.makes} - away
                following.append((time + node.time, (ran | {node.name}, there | made, away)))
        for price, successor in following:
            if price < times.get(successor, float("inf")):
                times[successor] = price
                count += 1
                heapq.heappush(heap, (price, count, successor))
    return float("inf")


def random_graph(seed: int, forward: int = 4, backward: int = 4) -> Graph:
    """A random forward pass and a backward pass over it, with all that the model knows."""
    draw = np.random.default_rng(seed)
    nodes: list[Node] = []
    made: list[str] = ["x"]
    for i in range(forward):
        count = 1 + int(draw.random() < 0.2)
        makes = tuple(Storage(f"f{i}.{j}", int(draw.integers(0, 6))) for j in range(count))
        reads = {made[int(draw.integers(max(0, len(made) - 3), len(made)))] for _ in range(int(draw.integers(1, 3)))}
        nodes.append(
            Node(
                f"f{i}",
                tuple(sorted(reads)),
                makes,
                float(draw.integers(0, 5)),
                int(draw.integers(0, 3)),
                replayable=bool(draw.random() < 0.85),
            )
        )
        made += [storage.name for storage in makes]
    loss = nodes[-1].makes[0].name
    back: list[str] = []
    outputs = [loss]
    for i in range(backward):
        reads = {made[int(draw.integers(1, len(made)))] for _ in range(int(draw.integers(1, 3)))} - {loss}
        if back:
            reads.add(back[int(draw.integers(max(0, len(back) - 2), len(back)))])
        makes = (Storage(f"b{i}", int(draw.integers(0, 6))),)
        nodes.append(Node(f"b{i}", tuple(sorted(reads)), makes, float(draw.integers(0, 4)), backward=True))
        back.append(f"b{i}")
        if draw.random() < 0.3 or i == backward - 1:
            outputs.append(f"b{i}")
    return Graph(nodes, [Storage("x", 7, held=True)], outputs)


def sizes(graph: Graph) -> list[int]:
    """Budgets worth trying: from nothing to everything."""
    total = sum(chain.from_iterable((s.bytes for s in node.makes) for node in graph.nodes))
    return list(range(total + max(node.workspace for node in graph.nodes) + 1))
