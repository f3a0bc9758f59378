"""Graphs that the literature measures on: read from a folder that the user names, or made from their description.

The files of Moccasin (Bartan et al., 2023), which hold Checkmate's graphs too, are node-link JSON. They are under
a licence of their own and are not part of this repository: fetch them, and name the folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pebbling.graph import Graph, Node, Storage

_VGG = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def read(path: Path) -> Graph:
    """A node-link file, in its given order; nothing is an output, as in the papers."""
    document: dict[str, Any] = json.loads(path.read_text())
    facts = {each.get("id", each["name"]): each for each in document["nodes"]}
    reads: dict[Any, list[Any]] = {name: [] for name in facts}
    for link in document["links"]:
        source, target = (link["0"], link["1"]) if "0" in link else (link["source"], link["target"])
        reads[target].append(source)
    nodes = [
        Node(
            str(name),
            tuple(f"s{other}" for other in reads[name]),
            (Storage(f"s{name}", int(facts[name].get("cost_ram", facts[name].get("out_cost")))),),
            time=float(facts[name].get("cost_cpu", facts[name].get("duration"))),
            backward=bool(facts[name].get("backward", False)),
        )
        for name in document["graph"].get("order", list(facts))
    ]
    return Graph(nodes, name=str(document["graph"]["name"]))


def layered(count: int, width: float, dense: float = 0.2, skips: float = 0.14, seed: int = 0) -> Graph:
    """Random layers after Gagrani et al. (2022): each reads the one before, and now and then an earlier one.

    A layer has ``width`` times the square root of twice ``count`` nodes in the mean, and any number from a quarter of
    that to seven quarters. The draws are ours: these are graphs of that kind, not theirs.
    """
    draw = np.random.default_rng(seed)
    mean = width * np.sqrt(2 * count)
    layers: list[list[int]] = [[0]]
    while (made := sum(map(len, layers))) < count:
        size = min(count - made, max(1, round(float(draw.uniform(0.25, 1.75)) * mean)))
        layers.append(list(range(made, made + size)))
    layer = {node: at for at, some in enumerate(layers) for node in some}
    nodes = []
    for node in range(count):
        at = layer[node]
        above = layers[at - 1] if at else []
        reads = {int(each) for each in above if draw.random() < dense} or {int(each) for each in above[:1]}
        if at > 1 and draw.random() < skips:
            reads.add(int(draw.integers(layers[at - 1][0])))
        size, time = int(draw.integers(1, 500)) * 10, float(draw.integers(1, 1000))
        nodes.append(Node(f"n{node}", tuple(f"s{each}" for each in sorted(reads)), (Storage(f"s{node}", size),), time))
    return Graph(nodes, name=f"layers of {count}")


def vgg(depth: int, batch: int = 256) -> Graph:
    """VGG 16 or 19 at 224 × 224 in training, after its paper: times in multiplications, 4 bytes a number."""
    layers: list[tuple[str, int, float]] = []
    channels, side = 3, 224
    for block, count in enumerate(_VGG[depth]):
        wide = min(64 * 2**block, 512)
        for i in range(count):
            layers.append((f"conv{block}.{i}", 4 * batch * wide * side**2, 9.0 * channels * wide * side**2 * batch))
            channels = wide
        side //= 2
        layers.append((f"pool{block}", 4 * batch * wide * side**2, float(batch * wide * side**2)))
    inputs = 512 * 49
    for i, wide in enumerate((4096, 4096, 1000)):
        layers.append((f"dense{i}", 4 * batch * wide, float(inputs * wide * batch)))
        inputs = wide
    nodes, value = [], "x"
    for name, size, time in layers:
        nodes.append(Node(name, (value,), (Storage(name, size),), time))
        value = name
    nodes.append(Node("loss", (value,), (Storage("loss", 4),), 1.0))
    gradient, sizes = "loss", {name: size for name, size, _ in layers}
    for i in reversed(range(len(layers))):
        name, _, time = layers[i]
        before = layers[i - 1][0] if i else "x"
        made = Storage(f"d{before}", sizes.get(before, 4 * batch * 3 * 224**2))
        nodes.append(Node(f"{name} back", (gradient, name, before), (made,), 2 * time, backward=True))
        gradient = made.name
    return Graph(nodes, [Storage("x", 4 * batch * 3 * 224**2, held=True)], name=f"VGG{depth} (made here)")
