"""A class name means one thing in the whole library: who reads it knows which file is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pebbling

ROOT = Path(pebbling.__file__).parent

# Public names, each in a namespace of its own.
REASONED = {
    "Free": "an action of a chain's schedule, and one of a graph's plan",
    "Host": "pebbling.store.Host holds snapshots, pebbling.graph.Host describes a link",
    "Node": "pebbling.graph.Node is public; tree/structure.py registers how a container is taken apart",
}
# Names that still occur twice, until the rooms that they are in have been gone through.
LEFT = {
    "source": ["Again", "Call", "Entry", "Joined", "Watch", "_Finish"],
    "loops": ["Flat", "Measured", "Options", "Shelf", "Taped", "WayBack"],
    "numpy": ["Kind", "Lock", "Tape", "Traced"],
    "drive": ["Journal", "Record", "Report", "Run", "_Reader", "_Writer"],
    "jax": ["Plan", "Rows"],
    "graph": ["Chain", "Line", "Machine", "Room"],
    "models": ["Choice", "Cost", "Curve", "Settled"],
}


def _defined() -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_occurs_once() -> None:
    known = REASONED.keys() | {name for names in LEFT.values() for name in names}
    twice = {name: sorted(places) for name, places in _defined().items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in known} == {}


def test_exceptions_are_in_use() -> None:
    twice = {name for name, places in _defined().items() if len(places) > 1}
    assert REASONED.keys() <= twice
