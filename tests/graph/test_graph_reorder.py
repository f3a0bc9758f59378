"""Orders and replays by annealing, for graphs without a backward pass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling import BudgetError
from pebbling.graph import Graph, Node, Storage, check, solve
from pebbling.graph.board import Board
from pebbling.graph.compiled import loops
from pebbling.graph.indexed import index
from pebbling.graph.relations import relate
from pebbling.graph.reorder import annealed
from pebbling.graph.tighten import tighten
from pebbling.graph.timeline import Wires, timeline, wires


def layered(count: int, seed: int, outputs: bool = False, workspace: bool = False) -> Graph:
    """A random graph without a backward pass."""
    draw = np.random.default_rng(seed)
    nodes = []
    for i in range(count):
        reads = draw.choice(i, min(i, 1 + int(draw.integers(3))), replace=False) if i else []
        nodes.append(
            Node(
                f"n{i}",
                tuple(f"s{r}" for r in reads),
                (Storage(f"s{i}", int(draw.integers(1, 50))),),
                time=float(draw.integers(1, 20)),
                workspace=int(draw.integers(20)) if workspace else 0,
            )
        )
    return Graph(nodes, [], ["s3", f"s{count - 1}"] if outputs else [])


def bytes_of(graph: Wires, sequence: list[int]) -> list[int]:
    """Bytes during each run, counted anew from who reads what."""
    length, made, spans = len(sequence), {}, {}
    taken = [int(graph.workspace[node]) for node in sequence]
    for at, node in enumerate(sequence):
        for storage in graph.reads[graph.read_at[node] : graph.read_at[node + 1]]:
            if not graph.fixed[storage]:
                spans[storage, made[storage]] = at
        for storage in graph.makes[graph.make_at[node] : graph.make_at[node + 1]]:
            first = storage not in made
            made[storage] = at
            spans[storage, at] = length - 1 if graph.fixed[storage] and first else at
    for (storage, start), stop in spans.items():
        for at in range(start, stop + 1):
            taken[at] += int(graph.size[storage])
    return taken


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_bytes_are_right_after_any_run_is_put_in_or_taken_out(seed: int, outputs: bool, workspace: bool) -> None:
    indexed = index(layered(12, seed, outputs, workspace))
    graph, work, draw = wires(indexed), loops(False), np.random.default_rng(seed)
    line = timeline(graph, 40, 4, seed)
    budget = 120
    work.lay(graph, line, np.arange(12), 12, budget)
    for _ in range(40):
        node = int(draw.integers(12))
        if line.times[node] > 1 and draw.random() < 0.5:
            work.take(graph, line, node, int(draw.integers(1, line.times[node])), budget)
        elif line.times[node] < 4:
            empty = [s for s in np.flatnonzero(line.slots < 0) if s > line.runs[node, 0]]
            if empty:
                work.put(graph, line, node, int(draw.choice(empty)), budget)
        runs = np.flatnonzero(line.slots >= 0)
        assert line.taken[runs].tolist() == bytes_of(graph, line.slots[runs].tolist())
        assert line.over[0] == np.maximum(line.taken - budget, 0).sum()


def test_another_order_alone_can_meet_a_budget_and_is_then_proven_optimal() -> None:
    graph = layered(60, 1)
    peak = solve(graph, None).peak
    plan = solve(graph, 0.7 * peak, time_limit=8)
    assert check(plan).peak <= 0.7 * peak
    assert plan.overhead == 0
    assert plan.optimal


@pytest.mark.parametrize("outputs", [False, True])
def test_annealed_plans_pass_the_machine_and_are_no_worse_than_greed(outputs: bool) -> None:
    graph = layered(40, 2, outputs, workspace=True)
    indexed = index(graph)
    board = Board(indexed, 0)
    board.budget = int(0.6 * board.measure(board.everything())[0])
    found = [time for time, runs in annealed(board, np.arange(40), 1, lambda: True) if len(runs) >= 40]
    plan = solve(graph, board.budget, time_limit=8)
    check(plan)
    assert plan.time <= min(found)


def test_without_numba_annealing_finds_the_same() -> None:
    indexed = index(layered(30, 3))
    results = []
    for compile in (True, False):
        board = Board(indexed, 0, compile=compile)
        graph = wires(indexed)
        line, sequence, found = timeline(graph, 60, 8, 5), np.arange(60), np.empty(60, np.int64)
        board.loops.lay(graph, line, sequence, 30, 150)
        best, length = board.loops.anneal(graph, line, 150, 0, 3000, 3000, 60.0, 0.1, 1.5, np.inf, sequence, found)
        results.append((best, found[:length].tolist(), line.slots.tolist()))
    assert results[0] == results[1]


def test_bounds_of_graphs_without_a_backward_pass_are_below_the_optimum_and_often_above_nothing() -> None:
    above = 0
    for seed in range(25):
        graph = layered(11, seed)
        indexed = index(graph)
        relations, peak = relate(indexed), solve(graph, None).peak
        for share in (0.7, 0.8, 0.9):
            try:
                plan = solve(graph, share * peak)
            except BudgetError:
                continue
            assert plan.optimal
            bounds = [each.bound for each in tighten(Board(indexed, int(share * peak)), relations, 6, 5.0, 0)]
            best = max(bounds, default=0.0)
            assert best <= plan.time + 1e-6
            above += graph.time * (1 + 1e-6) < best
    assert above >= 3


def test_a_tight_budget_without_a_backward_pass_has_a_bound_above_nothing() -> None:
    graph = layered(60, 1)
    plan = solve(graph, 0.42 * solve(graph, None).peak, time_limit=6)
    assert 0 < plan.bound <= plan.overhead
