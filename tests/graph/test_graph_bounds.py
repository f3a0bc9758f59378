"""No bound is above the optimum, which a plain search over all plans, orders and replays gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graph_brute import least_time, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.graph import highs
from pebbling.graph.board import Board
from pebbling.graph.exact import exact
from pebbling.graph.host import Host, with_host
from pebbling.graph.indexed import index
from pebbling.graph.programme import programme
from pebbling.graph.relations import relate, smallest_peak
from pebbling.graph.tighten import prove, tighten


def chains(relations, backward):
    """All lines of one, two and three backward nodes of which each precedes the next."""
    found = [[node] for node in backward]
    for _ in range(2):
        found += [[*line, node] for line in found for node in backward if relations.precedes(line[-1], node)]
    return {tuple(line) for line in found}


def budgets(graph):
    board = Board(index(graph), 0, compile=False)
    peak, _ = board.measure(board.everything())
    floor = smallest_peak(index(graph), relate(index(graph)))
    return floor, range(floor, peak + 1)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), forward=st.integers(3, 5))
def test_the_programme_is_never_above_the_optimum(seed, forward):
    graph = random_graph(seed, forward, 8 - forward)
    indexed = index(graph)
    relations = relate(indexed)
    once = graph.time - sum(node.time for node in graph.nodes if node.replayable and not node.backward)
    lines = sorted(chains(relations, np.flatnonzero(indexed.backward).tolist()))
    _, tried = budgets(graph)
    for budget in list(tried)[:6]:
        best = least_time(graph, budget)
        for line in lines[:: max(1, len(lines) // 6)]:
            problem = programme(indexed, relations, line, max(budget, 1))
            for answer in (highs.relaxed(problem, 10.0, 0), highs.whole(problem, 10.0, 0, 1000)):
                if answer.infeasible:
                    assert best == np.inf
                else:
                    assert answer.bound * (graph.time or 1.0) + once <= best + 1e-9


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_any_multipliers_give_a_bound(seed):
    """Weak duality: what the solver's tolerances do to the multipliers can't make the bound wrong."""
    graph = random_graph(seed)
    indexed = index(graph)
    relations = relate(indexed)
    _, tried = budgets(graph)
    point = int(np.flatnonzero(indexed.backward)[0])
    problem = programme(indexed, relations, (point,), max(tried[0], 1))
    exactly = highs.relaxed(problem, 10.0, 0)
    if exactly.values is not None:
        least = float(problem.price @ exactly.values)
        draw = np.random.default_rng(seed)
        for _ in range(5):
            assert problem.bound(draw.normal(size=len(problem.limit))) <= least + 1e-7


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), host=st.integers(0, 8))
def test_leaving_small_terms_out_never_lifts_the_least_price(seed, host):
    """With terms of up to a fifth taken for small, and those of storages on the host, which count backwards."""
    graph = with_host(index(random_graph(seed)), Host(host, 2.0))
    relations = relate(graph)
    budget = max(smallest_peak(graph, relations), 1)
    for point in np.flatnonzero(graph.backward):
        problem = programme(graph, relations, (int(point),), budget)
        coarse = replace(problem, small=0.2).coarse()
        exactly, roughly = highs.relaxed(problem, 10.0, 0), highs.relaxed(coarse, 10.0, 0)
        assert exactly.infeasible or roughly.bound <= exactly.bound + 1e-7
        assert len(coarse.coefficient) <= len(problem.coefficient)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_no_plan_is_below_the_smallest_peak(seed):
    graph = random_graph(seed)
    floor, _ = budgets(graph)
    if floor:
        assert least_time(graph, floor - 1) == np.inf


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_the_search_over_all_states_finds_the_optimum(seed):
    graph = random_graph(seed)
    for budget in list(budgets(graph)[1])[:8]:
        found = exact(index(graph), budget, 10**6)
        assert found is not None
        assert found[0] == pytest.approx(least_time(graph, budget))


def test_the_search_gives_up_when_told():
    assert exact(index(random_graph(0)), 10**6, 2) is None


@pytest.mark.parametrize("seed", range(8))
def test_rounds_raise_the_bound_towards_the_optimum(seed):
    graph = random_graph(seed, 5, 4)
    indexed = index(graph)
    for budget in list(budgets(graph)[1])[:4]:
        best = least_time(graph, budget)
        rounds = list(tighten(Board(indexed, budget, compile=False), relate(indexed), 5, 10.0, 0))
        for bound in [*(each.bound for each in rounds), *prove(rounds, lambda: 10.0, 0)]:
            assert bound <= best + 1e-6 * max(graph.time, 1.0) or bound == best == np.inf
        for each in rounds:
            assert len(each.suggest(np.arange(len(graph))).keep) == indexed.events
