"""More memory never costs time: where plans are optimal in any case, else from plan to plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.graph import Graph, GraphPlan, Node, Storage, check, smallest, solve


def drawn(count: int, seed: int, backward: bool) -> Graph:
    """A random graph, half of it a backward pass if asked."""
    draw = np.random.default_rng(seed)
    nodes: list[Node] = []
    for i in range(count):
        back = backward and i >= count // 2
        reads = {int(each) for each in draw.integers(0, i, min(i, 1 + int(draw.integers(2))))} if i else set()
        if back:
            reads |= {i - 1, max(count - 2 - i, 0)}
        made = (Storage(f"s{i}", int(draw.integers(1, 40))),)
        time = float(draw.integers(1, 20))
        nodes.append(Node(f"n{i}", tuple(f"s{each}" for each in sorted(reads)), made, time, backward=back))
    return Graph(nodes, [], [f"s{count - 1}"])


def chain(graph: Graph, most: int, time_limit: float) -> list[GraphPlan]:
    """Plans for more and more memory, each from the one before."""
    peak, least = solve(graph, None).peak, smallest(graph)
    plans: list[GraphPlan] = []
    for budget in np.linspace(least, peak, most).astype(int).tolist():
        plans.append(solve(graph, budget, time_limit=time_limit, start=plans[-1] if plans else None))
    return plans


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 100_000), st.booleans())
def test_more_memory_is_never_slower_where_plans_are_proven_optimal(seed: int, backward: bool) -> None:
    graph = drawn(12, seed, backward)
    peak, least = solve(graph, None).peak, smallest(graph)
    plans = [solve(graph, budget) for budget in np.linspace(least, peak, 6).astype(int).tolist()]
    proven = [check(plan).time for plan in plans if plan.optimal]
    assert proven == sorted(proven, reverse=True)
    assert plans[-1].overhead == 0


@pytest.mark.parametrize(("seed", "backward"), [(1, True), (2, True), (3, False), (4, False)])
def test_more_memory_is_never_slower_from_plan_to_plan(seed: int, backward: bool) -> None:
    times = [check(plan).time for plan in chain(drawn(40, seed, backward), 6, 0.2)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]
