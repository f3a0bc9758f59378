"""Greedy freeing with repair, and local search, on plans in their compact form.

``free_one`` frees what is cheapest to bring back for each byte, at the worst moment: the rule of DTR
(Kirisame et al., 2021), but with the future known and the cost of making again counted over all that
is missing; what is cheaper to copy to the host and back goes there, if it has room. ``relieve`` repeats
that until the budget holds, ``shrink`` until nothing helps any more, ``restore`` keeps again whatever
still fits, and ``improve`` repeats all of it from random changes and keeps what is better. None of them
is optimal.

Written for numba, see ``unfold``. Work is counted in runs listed, so that a search ends at the same
place whatever the machine.
"""

from __future__ import annotations

import numpy as np

from .indexed import Arrays, Flags, Floats, Ints
from .unfold import Choices, Workspace, park, unfold, weigh


def host_room(graph: Arrays, plan: Choices, length: int, worst: int, work: Workspace) -> Ints:
    """Bytes that the host has left for each storage, from its last use before run ``worst`` to its next one."""
    reads, read_at, makes, make_at = graph.reads, graph.read_at, graph.makes, graph.make_at
    count = len(plan.order)
    park(graph, length, -1, work)
    found = np.full(len(graph.size), graph.host, np.int64)
    before = np.full(len(graph.size), -1, np.int64)
    after = np.full(len(graph.size), -1, np.int64)
    most = 0
    for at in range(worst - 1, -1, -1):
        most = max(most, work.parked[at + 1])
        node = work.sequence[at]
        if node < count:
            for i in range(read_at[node], read_at[node + 1]):
                if before[reads[i]] < 0:
                    before[reads[i]] = most
            for j in range(make_at[node], make_at[node + 1]):
                if before[makes[j]] < 0:
                    before[makes[j]] = most
    most = 0
    for at in range(worst, length):
        most = max(most, work.parked[at])
        node = work.sequence[at]
        if node < count:
            for i in range(read_at[node], read_at[node + 1]):
                if after[reads[i]] < 0:
                    after[reads[i]] = most
    for storage in range(len(found)):
        found[storage] -= max(before[storage], after[storage])
    return found


def free_one(
    graph: Arrays, plan: Choices, length: int, worst: int, excess: int, weight: Floats, spared: Flags, work: Workspace
) -> bool:
    """Drop one storage that is alive at run ``worst``, of the last ``unfold``; whether there was one.

    ``weight`` multiplies the price of each storage; events in ``spared`` are let alone if others do.
    """
    reads, read_at, maker, size, movable = graph.reads, graph.read_at, graph.maker, graph.size, graph.movable
    sequence, position, there, event, live = work.sequence, work.position, work.there, work.event, work.live
    unfold(graph, plan, worst, work)
    left = host_room(graph, plan, length, worst, work) if graph.host > 0 else work.there
    weigh(graph, plan, length, worst, work)
    at = position[worst]
    # What the node at hand and the replays for its sake still read can't be helped: 2 is read now, 1 later.
    needed = np.zeros(len(size), np.int8)
    last = worst
    while last < length and position[last] == at:
        node = sequence[last]
        if node < len(plan.order):
            for i in range(read_at[node], read_at[node + 1]):
                if needed[reads[i]] == 0:
                    needed[reads[i]] = 2 if last == worst else 1
        last += 1
    marked, pending = work.marked, work.pending
    marked[:] = -1
    best, cheapest, send = -1, np.inf, False
    for storage in range(len(size)):
        goes = graph.host > 0 and graph.trip[storage] < np.inf and size[storage] <= left[storage]
        if not live[storage] or there[storage] == 0 or size[storage] == 0 or not (movable[storage] or goes):
            continue
        if needed[storage] == 2 or (there[storage] == 3 and (needed[storage] == 1 or plan.hold[event[storage]] > at)):
            continue
        price = np.inf
        again = there[storage] != 1
        if movable[storage] and not (again and plan.sent[event[storage]]):
            marked[maker[storage]] = storage
            pending[0] = maker[storage]
            waiting, price = 1, 0.0
            while waiting:
                waiting -= 1
                node = pending[waiting]
                price += graph.time[node]
                for i in range(read_at[node], read_at[node + 1]):
                    read = reads[i]
                    if movable[read] and not live[read] and marked[maker[read]] != storage:
                        marked[maker[read]] = storage
                        pending[waiting] = maker[read]
                        waiting += 1
        # What was replayed or fetched in this gap before comes back in the same way again.
        sent = goes and graph.trip[storage] < price and not (again and not plan.sent[event[storage]])
        if sent:
            price = graph.trip[storage]
        price = (price + 1e-9) * weight[storage] / min(size[storage], excess)
        if spared[event[storage]]:
            price *= 1e6
        if price < cheapest:
            best, cheapest, send = storage, price, sent
    if best < 0:
        return False
    if there[best] == 1:
        plan.keep[event[best]] = False
        plan.sent[event[best]] = send
    else:
        plan.hold[event[best]] = at + 1
    return True


def relieve(
    graph: Arrays,
    plan: Choices,
    budget: int,
    weight: Floats,
    spared: Flags,
    spent: Ints,
    limit: int,
    work: Workspace,
) -> float:
    """Free until the budget holds; the time of all runs, or infinity if it can't within ``limit`` changes."""
    for _ in range(limit):
        length = unfold(graph, plan, -1, work)
        if length < 0:
            return np.inf
        spent[0] += length
        peak, worst, total = weigh(graph, plan, length, -1, work)
        if peak <= budget:
            return total if park(graph, length, -1, work) <= graph.host else np.inf
        if not free_one(graph, plan, length, worst, peak - budget, weight, spared, work):
            return np.inf
    return np.inf


def shrink(graph: Arrays, plan: Choices, budget: int, limit: int, work: Workspace) -> int:
    """Free on as long as that helps or until the budget holds; the smallest peak, whose plan is left in place."""
    weight, spared = np.ones(len(graph.size)), np.zeros(len(plan.keep), np.bool_)
    best, best_keep, best_hold, best_sent = -1, plan.keep.copy(), plan.hold.copy(), plan.sent.copy()
    spent = 0
    while spent < limit:
        length = unfold(graph, plan, -1, work)
        if length < 0:
            break
        spent += length
        peak, worst, _ = weigh(graph, plan, length, -1, work)
        if (best < 0 or peak < best) and park(graph, length, -1, work) <= graph.host:
            best = peak
            best_keep[:] = plan.keep
            best_hold[:] = plan.hold
            best_sent[:] = plan.sent
        if peak <= budget:
            break
        if not free_one(graph, plan, length, worst, peak - budget, weight, spared, work):
            break
    plan.keep[:] = best_keep
    plan.hold[:] = best_hold
    plan.sent[:] = best_sent
    return best


def unload(graph: Arrays, plan: Choices, work: Workspace) -> None:
    """Take back from the host, the largest at the worst moment first, until the rest has room there."""
    while True:
        length = unfold(graph, plan, -1, work)
        if length < 0:
            return
        most = park(graph, length, -1, work)
        if most <= graph.host:
            return
        worst = 0
        while work.parked[worst] < most:
            worst += 1
        park(graph, length, worst, work)
        unfold(graph, plan, worst, work)
        largest = -1
        for storage in range(len(graph.size)):
            if work.away[storage] and (largest < 0 or graph.size[storage] > graph.size[largest]):
                largest = storage
        event = work.event[largest]
        plan.sent[event] = False
        if not graph.movable[largest]:
            plan.keep[event] = True


def restore(graph: Arrays, plan: Choices, budget: int, total: float, turns: Ints, work: Workspace) -> float:
    """Keep again what fits, trying the events in ``turns`` one by one, or bring it back in the other way; the time."""
    keep, hold, sent = plan.keep, plan.hold, plan.sent
    for event in turns:
        was = hold[event]
        if keep[event] and was == 0:
            continue
        storage = graph.reads[event] if event < len(graph.reads) else graph.makes[event - len(graph.reads)]
        both = graph.host > 0 and graph.movable[storage] and graph.trip[storage] < np.inf
        keep_was, sent_was = keep[event], sent[event]
        for way in range(3 if both else 2):
            if keep[event] and way != 1:
                continue
            if way == 0:
                keep[event] = True
            elif way == 1:
                hold[event] = 0
            else:
                sent[event] = not sent_was
            length = unfold(graph, plan, -1, work)
            if length >= 0:
                peak, _, time = weigh(graph, plan, length, -1, work)
                if peak <= budget and time <= total and park(graph, length, -1, work) <= graph.host:
                    total = time
                    break
            keep[event] = keep_was
            hold[event] = was
            sent[event] = sent_was
    return total


def improve(
    graph: Arrays,
    plan: Choices,
    budget: int,
    total: float,
    limit: int,
    chances: Floats,
    heat: float,
    work: Workspace,
) -> float:
    """Local search from a plan within the budget, until so many runs are listed; leaves the best in place."""
    keep, hold, sent = plan.keep, plan.hold, plan.sent
    best_keep, best_hold, best_sent, best = keep.copy(), hold.copy(), sent.copy(), total
    now_keep, now_hold, now_sent, now = keep.copy(), hold.copy(), sent.copy(), total
    weight = np.ones(len(graph.size))
    spared = np.zeros(len(keep), np.bool_)
    dropped = np.empty(len(keep), np.int64)
    spent = np.zeros(1, np.int64)
    draw = 0
    while spent[0] < limit:
        spent[0] += len(plan.order)
        count = 0
        for event in range(len(keep)):
            if not now_keep[event] or now_hold[event] > 0:
                dropped[count] = event
                count += 1
        if count == 0:
            break
        keep[:] = now_keep
        hold[:] = now_hold
        sent[:] = now_sent
        spared[:] = False
        changes = 1 + int(3 * chances[draw % len(chances)])
        draw += 1
        for _ in range(changes):
            event = dropped[int(count * chances[draw % len(chances)])]
            chance = chances[(draw + 1) % len(chances)]
            storage = graph.reads[event] if event < len(graph.reads) else graph.makes[event - len(graph.reads)]
            if chance < 0.6:
                keep[event] = True
            elif chance > 0.85 and graph.host > 0 and graph.movable[storage] and graph.trip[storage] < np.inf:
                sent[event] = not sent[event]
            else:
                hold[event] = int(len(plan.order) * chances[(draw + 2) % len(chances)])
            spared[event] = True
            draw += 3
        spread = chances[draw % len(chances)]
        for storage in range(len(graph.size)):
            weight[storage] = 1.0 + spread * (chances[(draw + storage) % len(chances)] - 0.5)
        draw += len(graph.size)
        found = relieve(graph, plan, budget, weight, spared, spent, 40, work)
        if found < best:
            best = found
            best_keep[:] = keep
            best_hold[:] = hold
            best_sent[:] = sent
        # Threshold accepting (Dueck and Scheuer, 1990), with a threshold that falls to nothing.
        if found <= now + heat * (1.0 - spent[0] / limit) * chances[draw % len(chances)]:
            now = found
            now_keep[:] = keep
            now_hold[:] = hold
            now_sent[:] = sent
        draw += 1
    keep[:] = best_keep
    hold[:] = best_hold
    sent[:] = best_sent
    return best
