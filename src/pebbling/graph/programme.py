"""A linear programme over which results are alive at a few moments, mostly of the backward pass.

Let b₁, …, b_K be nodes, each an ancestor of the next, so that they run for the first time in this order
in any plan, and let interval k be the time from the first run of b_k to that of b_{k+1}. For every plan
set, with values 0 and 1,

- S[k,s] : storage s, which may be dropped and made again, is there while b_k runs for the first time;
- R[k,f] : node f, which may run again, runs in interval k at least once;
- D[k,d] : node d, which runs only once, has run when b_k runs (known where d and b_k are related);
- L[k,w] : storage w of such a node is there while b_k runs;
- A[k,f] : node f, which may run again, runs at b_k or after it at least once.

Then, whatever the order and however often results are replayed, and replays replayed:

- a storage is there only if it was at the moment before or its maker ran since: S[k,s] ≤ S[k-1,s] + R[k-1,f];
- a node runs only with its inputs: R[k,f] ≤ S[k,u] + R[k,g] for every input u of f, made by g, and likewise
  D[k+1,d] - D[k,d] ≤ S[k,u] + R[k,g];
- what is needed later, and not there, is made later: S[k,u] + A[k,g] ≥ 1 - D[k,d] for every input u of d, and
  S[k,u] + A[k,g] ≥ A[k,f]; and A[k,f] ≤ R[k,f] + R[k+1,f] + …, without which a fraction of an input could
  serve a different fraction of its reader in every interval;
- what runs once stays until its last reader has run: L[k,w] ≥ D[k,p] - D[k,d], and outputs stay for good;
- every node runs, before all b_k that follow it and after all b_k that it follows: the R of the intervals between
  add up to 1 or more; and where it is open on which side of b_k it runs first, R[0,f] + … + R[k-1,f] + A[k,f] ≥ 1;
- the bytes of S and L, of what b_k makes and of its workspace are within the budget;
- the time is at least that of all R and of all nodes that run once.

Where storages may go to the host, two more for each that may, of either kind:

- H[k,s] : storage s is on the host while b_k runs, and so is not here: S[k,s] + H[k,s] ≤ 1;
- F[k,s] : what is on the host while b_k runs is fetched in interval k, which takes the time of both copies.

What is on the host was there before, or here, or was made since; it stays there or is fetched, and is
fetched in the end: H[k,s] ≤ H[k+1,s] + F[k,s]. A fetch stands beside R in the rules of what is there, H
beside S in those of what is needed later and in place of L for what runs once; and the bytes of H are
within those of the host.

So the least time of the programme, relaxed to values between 0 and 1, is a lower bound for every plan.
The bound is taken from the dual values by weak duality over the unit box, which holds for any values
of the right sign: the solver's tolerances can't make it too high.
"""

from __future__ import annotations

import numpy as np

from .indexed import Flags, Floats, Indexed, Ints
from .linear import Constraints, Programme
from .relations import Relations


def programme(graph: Indexed, relations: Relations, points: tuple[int, ...], budget: int) -> Programme:
    """The programme for moments ``points``, in the order in which they run."""
    build = _Builder(graph, relations, points)
    build.availability()
    build.once()
    build.ahead()
    build.memory(budget)
    if (build.away >= 0).any():
        build.copies()
    return build.finish()


class _Builder:
    def __init__(self, graph: Indexed, relations: Relations, points: tuple[int, ...]) -> None:
        self.graph, self.points = graph, points
        nodes, storages, count = len(graph.time), len(graph.size), len(points)
        self.sides = np.array([relations.sides(point) for point in points])
        self.known = np.where(self.sides == 1, 1, np.where(self.sides == -1, 0, -1))
        self.known[np.arange(count), list(points)] = 0
        again = np.array([n.replayable and not n.backward for n in graph.graph.nodes], np.bool_)
        self.may_again = again
        self.again = np.flatnonzero(again)
        self.single = np.flatnonzero(~again)
        self.movable = np.flatnonzero(graph.movable)
        self.rows = Constraints()
        self.price: list[Floats] = []
        self.whole: list[Flags] = []
        self.ones: list[Ints] = []
        self.size = 0
        self.alive = np.full((count, storages), -1, np.int64)
        self.away = np.full((count, storages), -1, np.int64)
        self.fetch = np.full((count + 1, storages), -1, np.int64)
        self.run = np.full((count + 1, nodes), -1, np.int64)
        self.done = np.full((count, nodes), -1, np.int64)
        self.useful = [self._useful(k, again) for k in range(count)]
        for k in range(count):
            wanted = self.movable[self.useful[k][self.movable] & (self._known(k)[graph.maker[self.movable]] != 0)]
            self.alive[k, wanted] = self._variables(len(wanted), 0.0, True)
            unsure = self.single[(self.sides[k, self.single] == 0) & (self.single != points[k])]
            self.done[k, unsure] = self._variables(len(unsure), 0.0, False)
            self.ones.append(self.alive[k, [s for s in graph.reads_of(points[k]) if graph.movable[s]]])
        for k in range(count + 1):
            runs = again.copy()
            if k:
                runs &= self._known(k - 1) != 1
                runs[graph.maker[self.useful[k - 1]]] = True
            makers = np.flatnonzero(runs & again & ((self._known(k) != 0) | (k == count)))
            self.run[k, makers] = self._variables(len(makers), graph.time[makers], False)
        # After the last point there is one interval, in which A and R are the same.
        self.later = np.full((count, nodes), -1, np.int64)
        for k in range(count - 1):
            makers = np.flatnonzero((self.run[k + 1 :] >= 0).any(0))
            self.later[k, makers] = self._variables(len(makers), 0.0, False)
        self.later[count - 1] = self.run[count]
        for node in self.again:
            first, last = self._first_run(int(node))
            if first == last:
                self.ones.append(self.run[first, [node]])
        for k in range(count):
            self.ones.append(self.later[k, np.flatnonzero(again & (self._known(k) == 0))])
        for k in range(count):
            gone = self._may_be_away(k)
            self.away[k, gone] = self._variables(len(gone), 0.0, True)
            self.fetch[k + 1, gone] = self._variables(len(gone), graph.trip[gone], False)

    def _variables(self, count: int, price: Floats | float, whole: bool) -> Ints:
        first, self.size = self.size, self.size + count
        self.price.append(np.broadcast_to(np.asarray(price, np.float64), count).copy())
        self.whole.append(np.full(count, whole))
        return np.arange(first, self.size)

    def _useful(self, k: int, again: Flags) -> Flags:
        """Storages that something may read from point k on, directly or to make what is read; no plan needs others."""
        graph, known = self.graph, self._known(k)
        runs = known != 1
        useful = np.zeros(len(graph.size), np.bool_)
        for node in reversed(range(len(runs))):
            made = graph.makes_of(node)
            if again[node] and (useful[made] & graph.movable[made]).any():
                runs[node] = True
            if runs[node]:
                useful[graph.reads_of(node)] = True
        return useful

    def _may_be_away(self, k: int) -> Ints:
        """Storages that a plan may have on the host while point k runs."""
        graph, point, known = self.graph, self.points[k], self._known(k)
        may = (graph.trip < np.inf) & self.useful[k]
        may[graph.reads_of(point)] = False
        may[graph.makes_of(point)] = False
        return np.flatnonzero(may & (graph.movable | (known[graph.maker] != 0)))

    def availability(self) -> None:
        """What is there was there or has been made; what runs has its inputs; every node runs."""
        graph, last = self.graph, len(self.points)
        reader = np.repeat(np.arange(len(graph.time)), np.diff(graph.read_at))
        edge = np.flatnonzero(graph.movable[graph.reads] & np.isin(reader, self.again))
        user, read = reader[edge], graph.reads[edge]
        for k in range(last + 1):
            earlier = self.alive[k - 1] if k else np.full(len(graph.size), -1)
            if k:
                some = self.run[k, user] >= 0
                u, r = user[some], read[some]
                self.rows.add(
                    np.zeros(len(u)), (1.0, self.run[k, u]), (-1.0, earlier[r]),
                    (-1.0, self.run[k, graph.maker[r]]), (-1.0, self.fetch[k, r]),
                )  # fmt: skip
            if k < last:
                there = self.movable[self.alive[k, self.movable] >= 0]
                self.rows.add(
                    np.zeros(len(there)), (1.0, self.alive[k, there]), (-1.0, earlier[there]),
                    (-1.0, self.run[k, graph.maker[there]]), (-1.0, self.fetch[k, there]),
                )  # fmt: skip
        for node in self.again:
            start, stop = self._first_run(int(node))
            if start < stop:
                self.rows.one(-1.0, np.full(stop - start + 1, -1.0), self.run[start : stop + 1, node])
            for k in range(start, stop):
                # The first run is in one of those intervals: before this point, or later.
                column = np.append(self.run[start : k + 1, node], self.later[k, node])
                self.rows.one(-1.0, np.full(len(column), -1.0), column)

    def once(self) -> None:
        """Nodes that run once: when they may have run, and what they need in that interval."""
        graph, last = self.graph, len(self.points)
        pairs = [(d, p) for d in self.single for p in graph.before[d] if not self._again(p)]
        follower = np.array([d for d, _ in pairs], np.int64)
        leader = np.array([p for _, p in pairs], np.int64)
        known = [self._known(k) for k in range(-1, last + 1)]
        for k in range(last):
            free = self.done[k, follower] >= 0
            after, before = follower[free], leader[free]
            self.rows.add(self._sure(known[k + 1], before), (1.0, self.done[k, after]), (-1.0, self.done[k, before]))
            free_single = self.single[self.done[k, self.single] >= 0]
            if k + 1 < last:
                self.rows.add(
                    self._sure(known[k + 2], free_single), (1.0, self.done[k, free_single]),
                    (-1.0, self.done[k + 1, free_single]),
                )  # fmt: skip
        reader = np.repeat(np.arange(len(graph.time)), np.diff(graph.read_at))
        edge = np.flatnonzero(graph.movable[graph.reads] & np.isin(reader, self.single))
        user, read = reader[edge], graph.reads[edge]
        nothing = np.full(len(graph.time), -1)
        for k in range(last + 1):
            # Interval k lies between point k - 1 and point k of the arrays, which count from 0.
            start, stop = known[k], known[k + 1]
            begun = self.done[k - 1] if k else nothing
            ended = self.done[k] if k < last else nothing
            certain = np.where(stop < 0, 0.0, stop)[user] - np.where(start < 0, 0.0, start)[user]
            possible = (begun[user] >= 0) | (ended[user] >= 0) | (certain > 0)
            if k == 0:
                possible &= ~(self.sides[0, graph.maker[read]] == 1)
            u, r = user[possible], read[possible]
            earlier = self.alive[k - 1, r] if k else np.full(len(r), -1)
            self.rows.add(
                -certain[possible], (1.0, ended[u]), (-1.0, begun[u]), (-1.0, earlier),
                (-1.0, self.run[k, graph.maker[r]]), (-1.0, self.fetch[k, r]),
            )  # fmt: skip

    def ahead(self) -> None:
        """What is needed after each point is there or is made after it."""
        graph, last = self.graph, len(self.points)
        reader = np.repeat(np.arange(len(graph.time)), np.diff(graph.read_at))
        edge = np.flatnonzero(graph.movable[graph.reads])
        user, read = reader[edge], graph.reads[edge]
        again = np.isin(user, self.again)
        for k in range(last - 1):
            some = again & (self.later[k, user] >= 0)
            u, r = user[some], read[some]
            self.rows.add(
                np.zeros(len(u)), (1.0, self.later[k, u]), (-1.0, self.alive[k, r]), (-1.0, self.away[k, r]),
                (-1.0, self.later[k, graph.maker[r]]),
            )  # fmt: skip
            open_ = ~again & (self._known(k)[user] != 1) & (user != self.points[k])
            u, r = user[open_], read[open_]
            self.rows.add(
                -np.ones(len(u)), (-1.0, self.done[k, u]), (-1.0, self.alive[k, r]), (-1.0, self.away[k, r]),
                (-1.0, self.later[k, graph.maker[r]]),
            )  # fmt: skip
            makers = np.flatnonzero(self.later[k] >= 0)
            self.rows.add(
                np.zeros(len(makers)), (1.0, self.later[k, makers]),
                *((-1.0, self.run[j, makers]) for j in range(k + 1, last + 1)),
            )  # fmt: skip

    def memory(self, budget: int) -> None:
        """The bytes at each point, in units of the budget so that the numbers are of one size."""
        graph = self.graph
        for k, point in enumerate(self.points):
            known = self._known(k)
            constant = float(graph.workspace[point] + graph.size[graph.makes_of(point)].sum())
            there = self.movable[self.alive[k, self.movable] >= 0]
            column, weight = [self.alive[k, there]], [graph.size[there] / budget]
            mine = {int(s) for s in graph.makes_of(point)}
            used = {int(s) for s in graph.reads_of(point)}
            for storage in np.flatnonzero(~graph.movable):
                maker = int(graph.maker[storage])
                size = float(graph.size[storage])
                if storage in mine or not size:
                    continue
                if self._again(maker):
                    # An output of a node that may be replayed stays from its first run on.
                    constant += size if self.sides[k, maker] == 1 else 0.0
                    continue
                if storage in used or (graph.fixed[storage] and known[maker] == 1):
                    constant += size
                elif known[maker] == 0:
                    continue
                elif graph.fixed[storage]:
                    column.append(self.done[k, [maker]])
                    weight.append(np.array([size / budget]))
                else:
                    readers = [r for r in graph.readers[storage] if not self._again(r)]
                    away = self.away[k, [storage]]
                    if known[maker] == 1 and any(known[r] == 0 for r in readers):
                        constant += size
                        column.append(away[away >= 0])
                        weight.append(np.full((away >= 0).sum(), -size / budget))
                        continue
                    unsure = np.array([r for r in readers if known[r] != 1], np.int64)
                    if not len(unsure):
                        continue
                    variable = self._variables(1, 0.0, False)
                    column.append(variable)
                    weight.append(np.array([size / budget]))
                    sure = 1.0 if known[maker] == 1 else 0.0
                    self.rows.add(
                        np.full(len(unsure), -sure), (1.0, np.full(len(unsure), self.done[k, maker])),
                        (-1.0, self.done[k, unsure]), (-1.0, np.full(len(unsure), variable[0])),
                        (-1.0, np.full(len(unsure), away[0])),
                    )  # fmt: skip
            self.rows.one(1.0 - constant / budget, np.concatenate(weight), np.concatenate(column))

    def copies(self) -> None:
        """What is on the host: where it came from, that it is fetched before it is read, and that it has room."""
        graph, last = self.graph, len(self.points)
        reader = np.repeat(np.arange(len(graph.time)), np.diff(graph.read_at))
        edge = np.flatnonzero(~graph.movable[graph.reads])
        user, read = reader[edge], graph.reads[edge]
        again = np.isin(user, self.again)
        nothing = np.full(max(len(graph.time), len(graph.size)), -1)
        for k in range(last):
            gone = np.flatnonzero(self.away[k] >= 0)
            away, fetch = self.away[k, gone], self.fetch[k + 1, gone]
            self.rows.add(np.zeros(len(gone)), (1.0, fetch), (-1.0, away))
            following = self.away[k + 1, gone] if k + 1 < last else nothing[: len(gone)]
            self.rows.add(np.zeros(len(gone)), (1.0, away), (-1.0, following), (-1.0, fetch))
            self.rows.one(1.0, graph.size[gone] / graph.host, away)
            mine = gone[graph.movable[gone]]
            self.rows.add(np.ones(len(mine)), (1.0, self.alive[k, mine]), (1.0, self.away[k, mine]))
            before, there = (self.away[k - 1], self.alive[k - 1]) if k else (nothing, nothing)
            self.rows.add(
                np.zeros(len(mine)), (1.0, self.away[k, mine]), (-1.0, before[mine]), (-1.0, there[mine]),
                (-1.0, self.run[k, graph.maker[mine]]),
            )  # fmt: skip
            open_ = gone[self.done[k, graph.maker[gone]] >= 0]
            self.rows.add(np.zeros(len(open_)), (1.0, self.away[k, open_]), (-1.0, self.done[k, graph.maker[open_]]))
            # What runs in the interval after this point and reads what can't be made again needs it back.
            some = self.away[k, read] >= 0
            runs = some & again & (self.run[k + 1, user] >= 0)
            u, r = user[runs], read[runs]
            self.rows.add(
                np.ones(len(u)), (1.0, self.run[k + 1, u]), (1.0, self.away[k, r]), (-1.0, self.fetch[k + 1, r])
            )
            start, stop = self._known(k), self._known(k + 1)
            certain = np.where(stop < 0, 0.0, stop)[user] - np.where(start < 0, 0.0, start)[user]
            ended = self.done[k + 1] if k + 1 < last else nothing
            turns = some & ~again & ((self.done[k, user] >= 0) | (ended[user] >= 0) | (certain > 0))
            u, r = user[turns], read[turns]
            self.rows.add(
                1.0 - certain[turns], (1.0, ended[u]), (-1.0, self.done[k, u]), (1.0, self.away[k, r]),
                (-1.0, self.fetch[k + 1, r]),
            )  # fmt: skip

    def finish(self) -> Programme:
        """All of it as arrays."""
        graph = self.graph
        lower = np.zeros(self.size)
        ones = np.concatenate(self.ones)
        lower[ones[ones >= 0]] = 1.0
        price = np.concatenate(self.price) / (graph.graph.time or 1.0)
        return Programme(
            price,
            lower,
            np.ones(self.size),
            *self.rows.gathered(),
            np.concatenate(self.whole),
            self.alive,
            self.away,
            self.points,
        )

    def _again(self, node: int) -> bool:
        return bool(self.may_again[node])

    def _first_run(self, node: int) -> tuple[int, int]:
        """The first and the last interval in which a node may run for the first time."""
        known = self.known[:, node]
        return int((known == 0).sum()), len(known) - int((known == 1).sum())

    def _known(self, k: int) -> Ints:
        """Whether each node has run when point k runs: 1, 0, or -1 where that is open; k may lie outside."""
        if k < 0:
            return np.zeros(len(self.graph.time), np.int64)
        if k == len(self.points):
            return np.ones(len(self.graph.time), np.int64)
        return self.known[k]

    @staticmethod
    def _sure(known: Ints, nodes: Ints) -> Floats:
        """What a variable that is not there, because it is known, contributes to the right-hand side."""
        return np.where(known[nodes] == 1, 1.0, 0.0)
