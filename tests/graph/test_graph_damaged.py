"""Plans that claim what can't be, and files that someone has changed, are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pebbling.errors import ScheduleError
from pebbling.graph import Graph, Node, Storage, check, load, save, solve


def chain() -> Graph:
    """Four operations forward, and one backward for each."""
    forward = [Node(f"f{i}", (f"f{i - 1}" if i else "x",), (Storage(f"f{i}", 8),), 1.0) for i in range(4)]
    backward = [
        Node(f"b{i}", (f"f{i}", *(() if i == 3 else (f"b{i + 1}",))), (Storage(f"b{i}", 8),), 1.0, backward=True)
        for i in reversed(range(4))
    ]
    return Graph([*forward, *backward], [Storage("x", 8, True)], ["b0"])


def test_a_bound_above_the_plan_itself_is_refused() -> None:
    plan = solve(chain(), None)
    check(plan)
    with pytest.raises(ScheduleError, match="any plan must add 50"):
        check(replace(plan, bound=0.5))


@pytest.mark.parametrize("damage", [[9999], "?", None])
@pytest.mark.parametrize("place", [1, 2, 5, 6, 8])
def test_a_damaged_file_is_refused_by_name(place: int, damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    save(chain(), path)
    document = json.loads(path.read_text())
    document["nodes"][2][place] = damage
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"graph\.json' is damaged"):
        load(path)
