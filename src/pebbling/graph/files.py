"""Graphs and plans as JSON, so that a plan can be made on another machine; ``.gz`` files are compressed."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from .model import Graph, Node, Storage
from .plan import Compute, Fetch, Free, GraphPlan, Offload, Step

FORMATS = _GRAPH, _PLAN = "pebbling graph", "pebbling graph plan"
_VERSION = 1
_KINDS: tuple[type[Step], ...] = (Compute, Free, Offload, Fetch)
_COSTS = ("memory", "peak", "overhead", "bound", "minimum")
_HOST = ("host", "transfer", "host_peak")
"""What plans of files without offloading leave out."""


def save(value: Graph | GraphPlan, path: str | os.PathLike[str]) -> None:
    """Write a graph, or a plan with its graph, to a file."""
    document = _from_plan(value) if isinstance(value, GraphPlan) else _from_graph(value)
    content = json.dumps(document, separators=(",", ":")).encode()
    # The time of writing would make equal graphs unequal files.
    Path(path).write_bytes(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)


def load(path: str | os.PathLike[str]) -> Graph | GraphPlan:
    """What ``save`` wrote."""
    content = Path(path).read_bytes()
    try:
        document = json.loads(gzip.decompress(content) if str(path).endswith(".gz") else content)
        kind, version = document["format"], document["version"]
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)!r} holds no graph: {error}") from error
    if kind not in (_GRAPH, _PLAN) or version != _VERSION:
        found = f"{kind!r} of version {version!r}"
        raise ValueError(f"{os.fspath(path)!r} holds {found}; expected {_GRAPH!r} or {_PLAN!r} of version {_VERSION}")
    try:
        return _to_plan(document) if kind == _PLAN else _to_graph(document)
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged: {type(error).__name__}, {error}") from error


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
    inputs, words, rows = document["inputs"], document["words"], document["nodes"]
    storages = [Storage(name, size, i < inputs) for i, (name, size) in enumerate(document["storages"])]
    nodes = [
        Node(
            name,
            tuple(storages[i].name for i in reads),
            tuple(storages[i] for i in makes),
            time,
            workspace,
            bool(marks & 1),
            not marks & 2,
            bool(marks & 4),
            tuple(rows[i][0] for i in after),
            words[op],
            words[module],
            tuple(members),
        )
        for name, reads, makes, time, workspace, marks, op, module, after, members in rows
    ]
    outputs = [storages[i].name for i in document["outputs"]]
    return Graph(nodes, storages[:inputs], outputs, document["name"])


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
    steps = tuple(_KINDS[kind](graph.nodes[i].name if kind == 0 else names[i]) for kind, i in document["steps"])
    stages = tuple((name, overhead) for name, overhead in document["stages"])
    costs = {name: document[name] for name in (*_COSTS, *(name for name in _HOST if name in document))}
    return GraphPlan(graph, steps, stages=stages, **costs)
