"""Plans for thousands of operations: a first one within moments, and an end when the time is up."""

from time import process_time

from pebbling.graph import Graph, Node, Storage, check, solve


def deep(layers: int) -> Graph:
    """A training step of so many layers, four operations forward and four backward in each."""
    nodes, value, outputs = [], "x", ["loss"]
    for i in range(layers):
        for j in range(4):
            name, size = f"y{i}.{j}", 2**20 * (1 + (7 * j + i) % 3)
            nodes.append(Node(f"f{i}.{j}", (value,), (Storage(name, size),), 1e-3 * (1 + (3 * i + j) % 5)))
            value = name
    nodes.append(Node("loss", (value,), (Storage("loss", 4),), 1e-4))
    gradient = "loss"
    for i in reversed(range(layers)):
        for j in reversed(range(4)):
            before = f"y{i}.{j - 1}" if j else f"y{i - 1}.3" if i else "x"
            made = [Storage(f"d{i}.{j}", 2**20)] + [Storage(f"g{i}", 2**17)] * (j == 1)
            time = 2e-3 * (1 + (3 * i + j) % 5)
            nodes.append(Node(f"b{i}.{j}", (gradient, before, f"y{i}.{j}"), tuple(made), time, backward=True))
            gradient = f"d{i}.{j}"
        outputs.append(f"g{i}")
    return Graph(nodes, [Storage("x", 2**20, held=True)], [*outputs, gradient])


def test_four_thousand_operations_have_a_plan_soon_and_the_search_ends_with_its_time() -> None:
    small = deep(8)
    solve(small, 0.6 * solve(small, None).peak, time_limit=1)
    graph, first = deep(500), []
    peak = solve(graph, None).peak
    begun = process_time()
    plan = solve(graph, 0.6 * peak, time_limit=2, on_better=lambda plan: first.append(process_time() - begun))
    assert check(plan).peak <= 0.6 * peak
    assert first[0] < 3
    assert process_time() - begun < 15
