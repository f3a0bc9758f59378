"""Plans for captured graphs beside their limits and beside what others would do with the same bytes, in one run.

    python benchmarks/graphs.py [--save FILE] [--seconds 30] [--only NAME …]

The graphs are those of benchmarks/graph_models.py, captured before: no torch is needed. A budget is a
share of the peak without replays; where that is below the smallest budget that works, it is that share
of the way from there to the peak, and marked with *. The first solve of all is not timed: it compiles.
First plans and refusals are timed in CPU seconds, final plans by the wall.

The models that have a limit are there in two sizes. The first was chosen so that the limit is within reach;
the second has half the batch, and so the gradients of the weights, which no plan can drop, are a larger
part of the peak. Where the bound is above the limit the row says so, and the distance from the bound is
what counts.

A second table has the same graphs with room on the host, over links of several speeds.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import graph_peers
from pebbling import BudgetError
from pebbling.graph import Graph, GraphPlan, check, load, smallest, solve

FOLDER = Path(__file__).parent / "graphs"
NAMES = ("gpt12", "resnet50", "resnet50-half", "unet", "unet-half", "mlp64", "lstm", "gpt48", "gpt48-half")
SHARES = (0.7, 0.5, 0.3, 0.2)
LIMITS = {
    (name + size, 0.5): limit
    for name, limit in {"resnet50": 0.06, "unet": 0.06, "gpt48": 0.08}.items()
    for size in ("", "-half")
}
COPIED, LINKS, HOST_SECONDS = ("gpt12", "resnet50", "unet", "mlp64"), (1e9, 4e9, 16e9, 64e9), 12.0


@dataclass(frozen=True)
class Cell:
    """One model at one budget."""

    name: str
    share: float
    moved: bool
    plan: GraphPlan
    first: float
    final: float
    peers: dict[str, float | None]

    @property
    def ratio(self) -> float:
        """Overhead over its bound."""
        if self.plan.optimal or self.plan.overhead < 1e-5:
            return 1.0
        return self.plan.overhead / self.plan.bound if self.plan.bound else float("inf")

    @property
    def limit(self) -> float | None:
        """The most that the overhead may be."""
        return None if self.moved else LIMITS.get((self.name, self.share))

    @property
    def unreachable(self) -> bool:
        """Whether it is proven that no plan keeps the limit."""
        return self.limit is not None and self.plan.bound > self.limit

    @property
    def misses(self) -> list[str]:
        """What does not hold."""
        ours = self.plan.overhead - 1e-9
        found = [f"above {peer}" for peer, each in self.peers.items() if each is not None and ours > each]
        if self.limit is not None and self.plan.overhead > self.limit and not self.unreachable:
            found.append(f"above {self.limit:.0%}")
        if self.first > 3:
            found.append("first plan late")
        if self.final > 30.5:
            found.append("final plan late")
        return found

    def row(self) -> str:
        """A line of the table."""
        peers = ["none fits" if each is None else f"{each:.2%}" for each in self.peers.values()]
        bound = "proven optimal" if self.plan.optimal else f"{self.plan.bound:.2%}"
        texts = [
            self.name, f"{self.share:.0%}{'*' if self.moved else ''}", f"{self.plan.memory / 2**20:.1f} MiB",
            f"{self.plan.overhead:.2%}", bound, *peers, f"{self.first:.1f} s", f"{self.final:.1f} s",
            "–" if self.limit is None else f"≤ {self.limit:.0%}",
            "; ".join(self.misses) or (f"no plan keeps {self.limit:.0%}" if self.unreachable else "holds"),
        ]  # fmt: skip
        return f"| {' | '.join(texts)} |"


def cell(name: str, graph: Graph, share: float, peak: int, minimum: int, seconds: float) -> Cell:
    """Solve, check, and ask the others."""
    moved = share * peak < minimum
    budget = int(minimum + share * (peak - minimum)) if moved else int(share * peak)
    begun, started = process_time(), perf_counter()
    times: list[float] = []
    plan = solve(graph, budget, time_limit=seconds, on_better=lambda plan: times.append(process_time() - begun))
    final = perf_counter() - started
    check(plan)
    peers = {
        "checkpoint": graph_peers.segments(graph, plan.peak),
        "DTR": graph_peers.dtr(graph, plan.peak),
        "knapsack": graph_peers.knapsack(graph, plan.peak),
    }
    return Cell(name, share, moved, plan, times[0], final, peers)


def copied(name: str) -> list[str]:
    """Rows for plans that may copy to the host, at 30 % of the peak, over links from none to fast."""
    graph = load(FOLDER / f"{name}.json.gz")
    budget = int(0.3 * solve(graph, None).peak)
    plan = solve(graph, budget, time_limit=HOST_SECONDS)
    rows = []
    for link in (None, *LINKS):
        if link is not None:
            plan = solve(graph, budget, time_limit=HOST_SECONDS, host="16GiB", transfer=link, start=plan)
            check(plan)
        bound = "proven optimal" if plan.optimal else f"{plan.bound:.2%}"
        moved = sum(count * graph.storage[storage].bytes for storage, count in plan.offloaded.items())
        texts = [
            name, "none" if link is None else f"{link / 1e9:.0f} GB/s", f"{plan.overhead:.2%}", bound,
            f"{len(plan.replayed)}", f"{len(plan.offloaded)}", f"{moved / 2**20:.1f} MiB",
            f"{plan.host_peak / 2**20:.1f} MiB",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(texts)} |")
    return rows


def refusal(graph: Graph, minimum: int) -> float:
    """Seconds until a budget that is too small is refused, with the smallest that works."""
    begun = process_time()
    try:
        solve(graph, minimum // 2)
    except BudgetError:
        return process_time() - begun
    raise AssertionError("half of the smallest budget that was found works")


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    parser.add_argument("--seconds", type=float, default=29.0)
    parser.add_argument("--only", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    lines = [
        f"# Plans for graphs, {date.today()}",
        "",
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}. "
        "Overhead: replays as a share of the time of forward and backward. Bound: proven for every plan within the "
        "budget. The three peers have the bytes that our plan takes; knapsack is torch's activation_memory_budget, as "
        "its partitioner runs it, at the best of several values. Budgets marked with * are that share of the way from "
        "the smallest one that works to the peak, the share of the peak itself being below it. First plans and "
        "refusals in CPU seconds, final plans by the wall clock. The models that have a limit were sized so that it is "
        "within reach; -half is the same model at half the batch, where that need not be so: the bound tells.",
        "",
        "| model | budget | | overhead | bound | best torch.utils.checkpoint | DTR | knapsack "
        "| first plan | final | limit | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    warm = load(FOLDER / "unet.json.gz")
    solve(warm, 0.3 * solve(warm, None).peak, time_limit=5)
    cells: list[Cell] = []
    refusals: dict[str, float] = {}
    for name in arguments.only:
        graph = load(FOLDER / f"{name}.json.gz")
        peak, minimum = solve(graph, None).peak, smallest(graph)
        refusals[name] = refusal(graph, minimum)
        for share in SHARES:
            cells.append(cell(name, graph, share, peak, minimum, arguments.seconds))
            lines.append(cells[-1].row())
            print(lines[-1], flush=True)
    ratio, slowest = statistics.median(each.ratio for each in cells), max(refusals, key=lambda name: refusals[name])
    missed = [each for each in cells if each.misses]
    summary = [
        "",
        f"Median of overhead over bound: {ratio:.3f} (limit 1.35: {'holds' if ratio <= 1.35 else 'MISSED'}); "
        f"proven optimal: {sum(each.plan.optimal for each in cells)} of {len(cells)} cells. "
        f"Slowest refusal of a budget that is too small: {refusals[slowest]:.1f} s, {slowest} "
        f"(limit 5 s: {'holds' if refusals[slowest] < 5 else 'MISSED'}). Cells that miss a limit: {len(missed)}.",
    ]
    unreachable = [each for each in cells if each.unreachable]
    if unreachable:
        most = max(each.plan.overhead - each.plan.bound for each in unreachable)
        summary[-1] += (
            f" Limits that are proven to be out of reach: {', '.join(each.name for each in unreachable)}; the plans "
            f"there are within {100 * most:.2f} points of the bound."
        )
    summary += [
        "",
        "## With room on the host",
        "",
        "At 30 % of the peak, with 16 GiB on the host; copies block, and each storage goes and comes back over the "
        f"link. {HOST_SECONDS:.0f} seconds for each plan.",
        "",
        "| model | link | overhead | bound | replayed | offloaded | each way | most on the host |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(summary), flush=True)
    for name in [each for each in COPIED if each in arguments.only]:
        rows = copied(name)
        summary += rows
        print("\n".join(rows), flush=True)
    if arguments.save:
        arguments.save.write_text("\n".join(lines + summary) + "\n")
    sys.exit(bool(missed) or ratio > 1.35 or refusals[slowest] >= 5)


if __name__ == "__main__":
    main()
