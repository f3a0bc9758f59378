"""The plots of docs/performance.md, drawn from the newest tables in benchmarks/results.

Run: python benchmarks/plots.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "pictures"
OURS, PEER, OTHER, INK = "#1f77b4", "#ff7f0e", "#8c8c8c", "#7f7f7f"
plt.rcParams.update(
    {
        "svg.hashsalt": "pebbling",
        "svg.fonttype": "none",
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


def newest(name: str) -> str:
    """The text of the newest table of that name; files are called date-name.md."""
    return sorted(RESULTS.glob(f"????-??-??-{name}.md"))[-1].read_text()


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def number(text: str) -> float:
    found = re.search(r"-?[\d,]+(\.\d+)?", text)
    assert found is not None, text
    return float(found[0].replace(",", ""))


def save(figure: plt.Figure, name: str) -> None:
    figure.tight_layout()
    figure.savefig(PICTURES / f"{name}.svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    print(PICTURES / f"{name}.svg")


def models() -> None:
    """Time against peak, on a GPU: a point a line of the table."""
    text = newest("torch-models-gpu")
    parts = re.split(r"^### ", text, flags=re.MULTILINE)[1:3]
    figure, axes = plt.subplots(1, len(parts), figsize=(9, 3.6), sharey=True)
    for axis, part in zip(axes, parts):
        points: dict[str, list[tuple[float, float]]] = {"fit": [], "torch.utils.checkpoint": [], "plain": []}
        for cells in rows(part):
            kind = next((kind for kind in points if cells[0].startswith(kind)), None)
            if kind and "no limit" not in cells[0] and "MB" in cells[1]:
                points[kind].append((number(cells[1]) / 1000, number(cells[4])))
        for kind, colour, mark in (("fit", OURS, "o"), ("torch.utils.checkpoint", PEER, "s"), ("plain", OTHER, "D")):
            axis.plot(*zip(*sorted(points[kind])), mark + ("-" if kind == "fit" else ""), color=colour, label=kind)
        axis.set_title(part.splitlines()[0], fontsize=10)
        axis.set_xlabel("peak above the parameters, GB")
        axis.set_xlim(left=0)
    axes[0].set_ylabel("time of a step, × plain")
    axes[0].legend()
    save(figure, "models")


def loops() -> None:
    """Checkpointed loops in JAX beside equinox's, for small steps."""
    lines = [cells for cells in rows(newest("jax-loops-cpu-short")) if cells[0] == "cheap" and cells[1] == "1 KiB"]
    powers = {"100": "10²", "1000": "10³", "10000": "10⁴"}
    labels = [f"{powers[cells[2]]} steps\n{cells[3]} slots" for cells in lines]
    figure, axis = plt.subplots(figsize=(9, 3.6))
    place = range(len(lines))
    axis.bar([at - 0.2 for at in place], [number(cells[7]) for cells in lines], 0.4, color=OURS, label="pebbling.jax")
    axis.bar([at + 0.2 for at in place], [number(cells[11]) for cells in lines], 0.4, color=PEER, label="equinox")
    axis.axhline(1, color=OTHER, linewidth=1)
    axis.set_yscale("log")
    axis.set_ylabel("time, × the steps alone")
    axis.set_xticks(list(place), labels, fontsize=8)
    axis.legend()
    save(figure, "loops")


def graphs() -> None:
    """Overhead of plans at half of the memory, beside what others need and what is proven."""
    lines = [cells for cells in rows(newest("graphs")) if cells[1] == "50%"]
    figure, axis = plt.subplots(figsize=(9, 3.6))
    for at, cells in enumerate(lines):
        ours = number(cells[3])
        bound = ours if "optimal" in cells[4] else number(cells[4])
        for cell, colour, mark, label in (
            (cells[5], PEER, "s", "torch.utils.checkpoint, best split"),
            (cells[6], OTHER, "^", "DTR"),
        ):
            if "fits" not in cell:
                axis.plot(at, number(cell), mark, color=colour, label=label if at == 0 else None)
        axis.plot(at, ours, "o", color=OURS, label="pebbling" if at == 0 else None)
        axis.plot([at - 0.25, at + 0.25], [bound, bound], color=INK, label="proven lower bound" if at == 0 else None)
    axis.set_xticks(range(len(lines)), [cells[0] for cells in lines], fontsize=9)
    axis.set_ylabel("time added, %")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=9)
    save(figure, "graphs")


if __name__ == "__main__":
    models()
    loops()
    graphs()
