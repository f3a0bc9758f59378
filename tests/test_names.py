"""A class name means one thing in the whole library: who reads it knows which file is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pebbling

ROOT = Path(pebbling.__file__).parent

# Public names, each in a namespace of its own; a name that is ours alone has no reason to occur twice.
REASONED = {
    "Entry": "pebbling.jax.Entry is a line of its report; source/entry.py says what a loop of a function is given",
    "Free": "an action of a chain's schedule, and one of a graph's plan",
    "Host": "pebbling.store.Host holds snapshots, pebbling.graph.Host describes a link",
    "Report": "pb.Report tells of a run of pb.adjoint, pebbling.jax.Report of the loops of a function",
    "Node": "pebbling.graph.Node is public; tree/structure.py registers how a container is taken apart",
}


def _defined() -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_occurs_once() -> None:
    known = REASONED.keys()
    twice = {name: sorted(places) for name, places in _defined().items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in known} == {}


def test_exceptions_are_in_use() -> None:
    twice = {name for name, places in _defined().items() if len(places) > 1}
    assert REASONED.keys() <= twice
