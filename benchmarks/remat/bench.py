"""Plans for the graphs of the literature beside the figures that were published for them.

    python benchmarks/remat/bench.py [--folder MOCCASIN/data] [--seconds 29] [--only RL1 …] [--save FILE]

Without a folder: graphs of the same kinds, made here. With one: the files themselves, and what Checkmate, Moccasin
and FastSA published on them. The budget is a share of the peak of the given order. The first solve, which
compiles, is not timed.
"""

from __future__ import annotations

import argparse
import math
import platform
from datetime import date
from pathlib import Path
from time import perf_counter, process_time

import literature
import numpy as np

from pebbling import BudgetError
from pebbling.graph import Graph, check, solve

_FILES = {
    "RL1": "random_layered_n100_", "RL2": "random_layered_n250_", "RL3": "random_layered_n500_",
    "RL4": "random_layered_n1000_", "VGG16": "VGG16", "VGG19": "VGG19", "MobileNet": "MobileNet",
    "ResNet50": "ResNet50", "fcn8": "fcn_8_vgg", "segnet": "segnet", "vgg_unet": "vgg_unet",
}  # fmt: skip
_PUBLISHED: dict[tuple[str, float], tuple[float | None, float | None, float | None]] = {
    ("RL1", 0.8): (2.3, 2.3, 0.3), ("RL2", 0.8): (None, 4.9, 0.0), ("RL3", 0.8): (None, 3.4, 2.3),
    ("RL4", 0.8): (None, 3.4, 2.5), ("fcn8", 0.8): (0.1, 0.1, 0.1), ("ResNet50", 0.8): (0.3, 0.3, 0.4),
    ("RL1", 0.7): (None, None, 2.2), ("RL2", 0.7): (None, None, 2.6), ("RL3", 0.735): (None, None, 4.8),
    ("RL4", 0.7): (None, None, 7.4), ("fcn8", 0.7): (None, None, 3.0), ("ResNet50", 0.7): (None, None, 0.8),
}  # fmt: skip
"""Overhead in percent: Checkmate, Moccasin, FastSA."""


def graphs(folder: Path | None) -> dict[str, Graph]:
    """The graphs by their short names."""
    if folder is None:
        sizes = {"L1": (100, 0.27), "L2": (250, 0.43), "L3": (500, 0.36), "L4": (1000, 0.31)}
        made = {name: literature.layered(count, width) for name, (count, width) in sizes.items()}
        return made | {"VGG16*": literature.vgg(16), "VGG19*": literature.vgg(19)}
    found = {}
    for name, start in _FILES.items():
        paths = [each for each in sorted(folder.glob("*.json")) if each.name.startswith(start)]
        paths = [each for each in paths if "_test_" not in each.name]
        if not paths:
            raise SystemExit(f"{folder} has no file that begins with {start!r}: name the folder of Moccasin's data")
        found[name] = literature.read(paths[0])
    return found


def row(name: str, graph: Graph, share: float, peak: int, seconds: float) -> str:
    """One line of the table."""
    firsts: list[float] = []
    cpu, wall = process_time(), perf_counter()
    try:
        plan = solve(
            graph,
            math.ceil(share * peak),
            time_limit=seconds,
            on_better=lambda plan: firsts.append(process_time() - cpu),
        )
    except BudgetError as error:
        return f"| {name} | {share:.1%} | none: {error.minimum / peak:.1%} works | | | | | | | |"
    cpu, wall = process_time() - cpu, perf_counter() - wall
    check(plan)
    theirs = _PUBLISHED.get((name, share), (None, None, None))
    texts = ["–" if each is None else f"{each:.1f}" for each in theirs]
    known = [each for each in theirs if each is not None]
    verdict = "" if not known else "at or below" if round(100 * plan.overhead, 1) <= min(known) else "ABOVE"
    bound = "proven optimal" if plan.optimal else f"{100 * plan.bound:.2f}"
    first, last = (firsts[0] if firsts else cpu), plan.stages[-1][0]
    return (
        f"| {name} | {share:.1%} | {len(graph)} | {100 * plan.overhead:.2f} | {bound} | {' | '.join(texts)} "
        f"| {verdict} | {first:.2f} | {cpu:.1f} | {wall:.1f} | {last} |"
    )


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where Moccasin's files are")
    parser.add_argument("--seconds", type=float, default=29.0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--shares", nargs="*", type=float, default=[0.9, 0.8, 0.7])
    parser.add_argument("--save", type=Path, help="add the table to a Markdown file")
    arguments = parser.parse_args()
    lines = [
        f"Python {platform.python_version()}, NumPy {np.__version__}, {date.today()}; at most "
        f"{arguments.seconds:.0f} s for each plan. Overheads and bounds in percent of the time of one run of every "
        "node; first plan and all in seconds of this process's CPU time, and all by the wall clock.",
        "",
        "| graph | budget | nodes | overhead | bound | Checkmate | Moccasin | FastSA | beside the best of them "
        "| first plan | CPU | wall | found by |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    warm = literature.layered(60, 0.3)
    solve(warm, 0.6 * solve(warm, None).peak, time_limit=3)
    for name, graph in graphs(arguments.folder).items():
        if arguments.only and name not in arguments.only:
            continue
        peak = solve(graph, None).peak
        for share in [*arguments.shares, *(s for n, s in _PUBLISHED if n == name and s not in (0.8, 0.7))]:
            lines.append(row(name, graph, share, peak, arguments.seconds))
            print(lines[-1], flush=True)
    if arguments.save:
        with arguments.save.open("a") as file:
            file.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    main()
