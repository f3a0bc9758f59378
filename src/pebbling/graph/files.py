"""Graphs and plans as JSON, so that a plan can be made on another machine; ``.gz`` files are compressed."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..documents import check_of, parsed
from ..errors import DamagedFile
from .model import Graph, Node, Storage
from .plan import Compute, Fetch, Free, GraphPlan, Offload, Step

FORMATS = _GRAPH, _PLAN = "pebbling graph", "pebbling graph plan"
_VERSION = 1
_KINDS: tuple[type[Step], ...] = (Compute, Free, Offload, Fetch)
_COSTS = ("memory", "peak", "overhead", "bound", "minimum")
_HOST = ("host", "transfer", "host_peak")
"""What plans of files without offloading leave out."""
_MAY_BE_NONE = ("memory", "minimum", "host", "transfer")
_T = TypeVar("_T")


def save(value: Graph | GraphPlan, path: str | os.PathLike[str]) -> None:
    """Write a graph, or a plan with its graph, to a file."""
    document = _from_plan(value) if isinstance(value, GraphPlan) else _from_graph(value)
    document["check"] = check_of(document)
    content = json.dumps(document, separators=(",", ":")).encode()
    # The time of writing would make equal graphs unequal files.
    Path(path).write_bytes(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)


def load(path: str | os.PathLike[str]) -> Graph | GraphPlan:
    """What ``save`` wrote; a ``DamagedFile`` if the file was changed since."""
    name = os.fsdecode(path)
    document = parsed(path)
    if not isinstance(document, dict) or "format" not in document or "version" not in document:
        raise DamagedFile(f"{name!r} holds no graph")
    kind, version = document["format"], document["version"]
    if kind not in FORMATS or version != _VERSION:
        found = f"{kind!r} of version {version!r}"
        raise DamagedFile(f"{name!r} holds {found}; expected {_GRAPH!r} or {_PLAN!r} of version {_VERSION}")
    try:
        made = _to_plan(document) if kind == _PLAN else _to_graph(document)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedFile(f"{name!r} is damaged: {type(error).__name__}, {error}") from error
    # Files of the first days have none.
    if "check" in document and document["check"] != check_of(document):
        raise DamagedFile(f"{name!r} is damaged: its content fails the check")
    return made


def _from_graph(graph: Graph) -> dict[str, Any]:
    position = {name: i for i, name in enumerate(graph.storage)}
    number = {node.name: i for i, node in enumerate(graph.nodes)}
    words: dict[str, int] = {}
    rows = [
        [
            node.name,
            [position[name] for name in node.reads],
            [position[storage.name] for storage in node.makes],
            node.time,
            node.workspace,
            node.backward + 2 * (not node.replayable) + 4 * node.random,
            words.setdefault(node.op, len(words)),
            words.setdefault(node.module, len(words)),
            [number[name] for name in node.after],
            list(node.members),
        ]
        for node in graph.nodes
    ]
    return {
        "format": _GRAPH,
        "version": _VERSION,
        "name": graph.name,
        "storages": [[name, storage.bytes] for name, storage in graph.storage.items()],
        "inputs": len(graph.inputs),
        "outputs": [position[name] for name in graph.outputs],
        "words": list(words),
        "nodes": rows,
    }


def _to_graph(document: dict[str, Any]) -> Graph:
    words, rows = document["words"], document["nodes"]
    inputs = _index(document["inputs"], len(document["storages"]) + 1)
    storages = [Storage(_text(name), _size(size), i < inputs) for i, (name, size) in enumerate(document["storages"])]
    nodes = [
        Node(
            _text(name),
            tuple(_at(storages, i).name for i in reads),
            tuple(_at(storages, i) for i in makes),
            _number(time),
            _size(workspace),
            bool(_index(marks, 8) & 1),
            not marks & 2,
            bool(marks & 4),
            tuple(_text(_at(rows, i)[0]) for i in after),
            _text(_at(words, op)),
            _text(_at(words, module)),
            tuple(_text(member) for member in members),
        )
        for name, reads, makes, time, workspace, marks, op, module, after, members in rows
    ]
    outputs = [_at(storages, i).name for i in document["outputs"]]
    return Graph(nodes, storages[:inputs], outputs, _text(document["name"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    return value


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise IndexError(f"{value!r} is none of {count}")
    return value


def _at(values: Sequence[_T], index: Any) -> _T:
    return values[_index(index, len(values))]


def _size(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number of bytes")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no time")
    return float(value) if isinstance(value, float) else value


def _from_plan(plan: GraphPlan) -> dict[str, Any]:
    number = {node.name: i for i, node in enumerate(plan.graph.nodes)}
    position = {name: i for i, name in enumerate(plan.graph.storage)}
    steps = [
        [_KINDS.index(type(step)), number[step.node] if isinstance(step, Compute) else position[step.storage]]
        for step in plan.steps
    ]
    costs = {name: getattr(plan, name) for name in (*_COSTS, *_HOST, "stages")}
    return {"format": _PLAN, "version": _VERSION, "graph": _from_graph(plan.graph), "steps": steps, **costs}


def _to_plan(document: dict[str, Any]) -> GraphPlan:
    graph = _to_graph(document["graph"])
    names = list(graph.storage)
    steps = tuple(
        _at(_KINDS, kind)(_at(graph.nodes, i).name if kind == 0 else _at(names, i)) for kind, i in document["steps"]
    )
    stages = tuple((_text(name), _number(overhead)) for name, overhead in document["stages"])
    costs = {name: document[name] for name in (*_COSTS, *(name for name in _HOST if name in document))}
    for name, cost in costs.items():
        if cost is not None or name not in _MAY_BE_NONE:
            _number(cost)
    return GraphPlan(graph, steps, stages=stages, **costs)
