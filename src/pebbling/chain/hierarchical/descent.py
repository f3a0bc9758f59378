"""A plan that comes close to the lower bound of ``prices``, and often meets it.

At the right price a part of the plan may have any of its best lengths, so steps are handed down
from node to node: to the faster levels alone where those have that length among their best, else
left and right of a split, one of the two taking its least or its most. Where the number of steps
lies between the best lengths of both ways, the nearer one is taken, and the part that is off its
best lengths looks for prices of its own. The result is a plan, not a proof: compare its time with
the bound.
"""

from __future__ import annotations

from .price_search import Market
from .prices import Offer, Prices
from .problem import DOWN, NodeChoice, PlanNode


def descend(market: Market) -> dict[PlanNode, NodeChoice]:
    """The choices of a good plan."""
    problem = market.problem
    choices: dict[PlanNode, NodeChoice] = {}
    todo = [(problem.root, market.right_for(problem.root), 0)]
    while todo:
        node, prices, depth = todo.pop()
        if node.level >= 0 and node not in choices:
            if not _within(node.steps, prices.offer(node, depth)):
                prices, depth = market.right_for(node), 0
            choices[node] = _choice(node, prices, depth)
            right, left = problem.parts(node, choices[node])
            todo.append((right, prices, depth))
            if left is not None:
                todo.append((left, prices, depth + 1))
    return choices


def _choice(node: PlanNode, prices: Prices, depth: int) -> NodeChoice:
    steps, problem = node.steps, prices.problem
    if steps == 1:
        return DOWN
    below, left, right = prices.parts(node, depth)
    split = prices.split(node, depth)
    best = prices.offer(node, depth)[0]
    if below[0] == best and _within(steps, below):
        return DOWN
    if split[0] == best and _within(steps, split):
        return _split(node, prices, depth, below, left, right)
    if _distance(steps, below) <= _distance(steps, split) and (node.level > 0 or problem.leaf.slots):
        return DOWN
    length = left[1] if right[1] > left[1] else steps - right[1]
    if node.level == 0 and node.slots == 1 and problem.leaf.slots == 0:
        length = steps - 1  # there is no slot left for more than one step after it
    return NodeChoice(1, min(max(length, 1), steps - 1), node.slots)


def _within(steps: int, offer: Offer) -> bool:
    return offer[1] <= steps <= offer[2]


def _distance(steps: int, offer: Offer) -> int:
    return max(offer[1] - steps, steps - offer[2], 0)


def _split(node: PlanNode, prices: Prices, depth: int, below: Offer, left: Offer, right: Offer) -> NodeChoice:
    """The first snapshots after the one of the first state, and how many slots the steps before each may use."""
    columns = prices.columns[node.level]
    slots = node.slots
    if depth + 1 == len(columns):
        slots = 1
    elif columns[depth + 1][True].settled:
        slots = min(slots, max(1, columns[depth + 1][True].last))
    opened = columns[depth][False]
    if not node.kept and node.slots > opened.last and not opened.settled:
        spare = node.slots - opened.last
        if opened.growth[0] == 0:
            times, length = _evenly(node.steps, prices, below, left)
        else:
            times, length = _all(node.steps, prices.offer(node, depth)[2], left, spare)
        if times:
            return NodeChoice(min(times, spare, prices.problem.longest_run), length, slots)
    return NodeChoice(1, max(left[1], node.steps - right[2]), slots)


def _all(steps: int, most: int, left: Offer, spare: int) -> tuple[int, int]:
    """Where each snapshot earns: all that are to spare, the first ones nearer to each other if steps are few."""
    _, shortest, longest = left
    if steps == most or shortest == longest:
        return spare, longest
    return (most - steps) // (longest - shortest), shortest


def _evenly(steps: int, prices: Prices, below: Offer, left: Offer) -> tuple[int, int]:
    """Where snapshots just earn their cost: the number that fits best, with what is over or missing spread evenly."""
    problem, longest = prices.problem, left[2]
    times, over = divmod(steps - below[2], longest)
    forward = problem.forward * prices.scale
    falling = (prices.price - (problem.leaf.turn + problem.leaf.read) * prices.scale) % forward
    shorter = longest - (longest - over) // (times + 2)
    if over * (forward - falling) > (longest - over) * falling and (times + 1) * shorter < steps:
        return times + 1, shorter
    return times, longest + over // (times + 1)
