"""What the user wants kept, or never replayed, in every plan."""

import pytest

from pebbling import BudgetError
from pebbling.errors import ScheduleError
from pebbling.graph import Graph, Node, Storage, check, solve

MIB = 2**20


def model(layers: int = 4) -> Graph:
    """Attention and a cheap activation in each layer, and their backward pass."""
    nodes, value = [], "x"
    for i in range(layers):
        nodes.append(Node(f"a{i}", (value,), (Storage(f"y{i}", MIB),), time=1.0, module=f"layers.{i}.attn.qkv"))
        nodes.append(Node(f"r{i}", (f"y{i}",), (Storage(f"z{i}", MIB),), time=0.5, module=f"layers.{i}.mlp"))
        value = f"z{i}"
    nodes.append(Node("loss", (value,), (Storage("loss", 4),), time=0.1))
    gradient = "loss"
    for i in reversed(range(layers)):
        nodes.append(Node(f"rb{i}", (gradient, f"z{i}"), (Storage(f"dy{i}", MIB),), 0.5, backward=True))
        nodes.append(Node(f"ab{i}", (f"dy{i}", f"y{i}"), (Storage(f"dx{i}", MIB),), 2.0, backward=True))
        gradient = f"dx{i}"
    return Graph(nodes, [Storage("x", MIB, held=True)], ["loss", gradient], "wishes")


def test_what_is_kept_is_never_made_again_and_the_plan_says_what_that_costs() -> None:
    graph, budget = model(), 7 * MIB
    free, kept = solve(graph, budget), solve(graph, budget, keep=["*.attn"])
    assert any(name.startswith("a") for name in solve(graph, 5 * MIB).replayed)
    assert not any(name.startswith("a") for name in kept.replayed)
    assert check(kept).peak <= budget
    assert kept.overhead >= free.overhead
    assert kept.optimal


def test_a_module_is_named_with_all_that_is_in_it_and_a_node_by_its_name() -> None:
    graph = model()
    by_node = solve(graph, 7 * MIB, never_replay=[f"a{i}" for i in range(4)])
    by_module = solve(graph, 7 * MIB, never_replay=[f"layers.{i}.attn" for i in range(4)])
    assert by_node == by_module


def test_a_wish_that_leaves_too_little_room_is_refused_with_a_budget_that_works() -> None:
    graph = model()
    with pytest.raises(BudgetError) as found:
        solve(graph, 5 * MIB, keep=["*.attn", "*.mlp"])
    plan = solve(graph, found.value.minimum, keep=["*.attn", "*.mlp"])
    assert not plan.replayed
    assert solve(graph, 5 * MIB).replayed


@pytest.mark.parametrize("argument", ["keep", "never_replay"])
def test_a_wish_that_matches_nothing_is_refused(argument: str) -> None:
    for wish in ("*.atn", "rb0", ""):
        with pytest.raises(ValueError, match=argument):
            solve(model(), 7 * MIB, **{argument: [wish]})
    with pytest.raises(ValueError, match="give a list"):
        solve(model(), 7 * MIB, **{argument: "*.attn"})


def test_what_never_replays_may_go_to_the_host_and_what_is_kept_may_not() -> None:
    graph = model()
    names = {f"y{i}" for i in range(4)}
    once = solve(graph, 6 * MIB, never_replay=["*.attn"], host="1GiB", transfer="100MB/s")
    assert names & set(once.offloaded)
    kept = solve(graph, 6.5 * MIB, keep=["*.attn"], host="1GiB", transfer="100MB/s")
    assert not names & set(kept.offloaded)
    with pytest.raises(ValueError, match="keep says"):
        solve(graph, 6 * MIB, keep=["*.attn"], host="1GiB", transfer="100MB/s", start=once)


def test_a_start_that_replays_what_is_to_be_kept_is_refused() -> None:
    graph = model()
    plan = solve(graph, 5 * MIB)
    with pytest.raises(ScheduleError):
        solve(graph, 7 * MIB, keep=["*.attn"], start=plan)
