"""Which nodes come before which in every order that runs, and what is certainly there at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .indexed import Flags, Indexed, Ints


@dataclass(frozen=True, eq=False)
class Relations:
    """``ancestors[n]`` marks the nodes that have run when ``n`` runs, in any order that runs."""

    ancestors: Flags

    def precedes(self, first: int, second: int) -> bool:
        """Whether ``first`` must have run (for the first time) when ``second`` runs."""
        return bool(self.ancestors[second, first])

    def sides(self, node: int) -> Ints:
        """For every node 1 if it precedes this one, -1 if it follows it, 0 if neither is certain."""
        return self.ancestors[node].astype(np.int64) - self.ancestors[:, node]

    def in_line(self, nodes: list[int]) -> list[int]:
        """Nodes of which each precedes the next, in that order."""
        return sorted(nodes, key=lambda node: int(self.ancestors[node].sum()))


def relate(graph: Indexed) -> Relations:
    """The relations of a graph."""
    count = len(graph.time)
    ancestors = np.zeros((count, count), np.bool_)
    for node, before in enumerate(graph.before):
        for other in before:
            ancestors[node] |= ancestors[other]
            ancestors[node, other] = True
    return Relations(ancestors)


def working_sets(graph: Indexed, relations: Relations) -> Ints:
    """Bytes that are certainly taken while each node runs, in any plan: none can do with less than the largest.

    What can't be made again is here, or on the host as far as that has room.
    """
    ancestors = relations.ancestors
    certain = graph.workspace.copy()
    for node in range(len(certain)):
        certain[node] += graph.size[graph.makes_of(node)].sum()
        certain[node] += graph.size[[s for s in graph.reads_of(node) if not graph.fixed[s]]].sum()
    away = np.zeros(len(certain), np.int64)
    once = np.array([node.backward or not node.replayable for node in graph.graph.nodes], np.bool_)
    for storage in np.flatnonzero(~graph.movable):
        maker = graph.maker[storage]
        made = ancestors[:, maker]
        if graph.fixed[storage]:
            certain[made] += graph.size[storage]
            continue
        # Nothing is certain of the moments of nodes that run again: a replay may come late.
        needed = np.zeros(len(certain), np.bool_)
        for reader in graph.readers[storage]:
            if once[reader]:
                needed |= ancestors[reader]
        needed[graph.readers[storage]] = False
        (away if graph.trip[storage] < np.inf else certain)[made & needed & once] += graph.size[storage]
    return certain + np.maximum(away - graph.host, 0)


def smallest_peak(graph: Indexed, relations: Relations) -> int:
    """A lower bound on the peak of any plan: the largest working set, or all outputs at the end."""
    return int(max(working_sets(graph, relations).max(initial=0), graph.size[graph.fixed].sum()))
