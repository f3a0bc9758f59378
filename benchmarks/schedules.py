"""How fast schedules are made, beside their limits and beside checkpoint_schedules, in one run.

    python benchmarks/schedules.py [--save FILE]

Installs nothing: peers that are not there are named as missing. Times are the best of several
runs in wall time, the peer's of one.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import statistics
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

import pebbling as pb
from pebbling.chain import binomial


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Best wall time of ``work``."""
    best = float("inf")
    for _ in range(repeats):
        begun = perf_counter()
        work()
        best = min(best, perf_counter() - begun)
    return best


def exhaust(stream: Iterator[object]) -> int:
    """Length of a stream, taken one by one."""
    length = 0
    for length, _ in enumerate(stream, 1):  # noqa: B007
        pass
    return length


Row = tuple[str, str, str, str, str]


def rate(name: str, measured: float, limit: float, peer: float | None) -> Row:
    """A row for actions per second."""
    ratio = "–" if peer is None else f"{measured / peer:,.0f}×"
    return name, f"{measured / 1e6:.2f} M/s", f"≥ {limit / 1e6:g} M/s", _verdict(measured >= limit), ratio


def duration(name: str, measured: float, limit: float, peer: float | None = None) -> Row:
    """A row for seconds."""
    ratio = "–" if peer is None else f"{peer / measured:,.0f}×"
    return name, f"{measured * 1e3:.3f} ms", f"< {limit * 1e3:g} ms", _verdict(measured < limit), ratio


def _verdict(holds: bool) -> str:
    return "holds" if holds else "MISSED"


def pyrevolve_actions() -> Iterator[object]:
    """Stream of 1000 steps with 10 slots from pyrevolve, whose schedules are made in C++."""
    from pyrevolve.schedulers import Action, CRevolve

    schedule = CRevolve(10, 1000)
    while (action := schedule.next()).type != Action.TERMINATE:
        yield action


def streams(peer) -> Iterator[Row]:
    """Actions per second, and what a stream takes."""
    peer_rate = None
    if peer:
        begun = perf_counter()
        length = exhaust(iter(peer.MultistageCheckpointSchedule(400, 10, 0)))
        peer_rate = length / (perf_counter() - begun)
    if importlib.util.find_spec("pyrevolve"):
        length = exhaust(pyrevolve_actions())
        theirs, small = length / seconds(lambda: exhaust(pyrevolve_actions())), pb.Revolve(1000, 10)
        ours = exhaust(iter(small)) / seconds(lambda: exhaust(iter(small)))
        name = "Revolve(1000, 10), one by one, beside pyrevolve"
        yield name, f"{ours / 1e6:.2f} M/s", "–", "", f"{ours / theirs:.1f}×"
    million = pb.Revolve(10**6, 20)
    length = exhaust(iter(million))
    yield rate("Revolve(10⁶, 20), one by one", length / seconds(lambda: exhaust(iter(million)), 3), 3e6, peer_rate)
    for slots in (10, 50):
        schedule = pb.Revolve(10**7, slots)
        length = sum(map(len, schedule.chunks()))
        taken = seconds(lambda s=schedule: sum(map(len, s.chunks())), 3)
        yield rate(f"Revolve(10⁷, {slots}).chunks(), no compiler", length / taken, 100e6, peer_rate)
    yield duration("Revolve(10⁷, 100), first action", seconds(lambda: next(iter(pb.Revolve(10**7, 100)))), 1e-3)
    peaks = []
    for steps in (10**5, 10**7):
        tracemalloc.start()
        exhaust(islice(pb.Revolve(steps, 50), 300_000))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    text = " / ".join(f"{peak / 1e3:.0f} kB" for peak in peaks)
    yield "memory of a stream, n = 10⁵ / 10⁷", text, "independent of n", _verdict(peaks[1] < 1.5 * peaks[0] + 1e5), "–"


def costs() -> Iterator[Row]:
    """Costs without iterating."""
    yield duration("Revolve(10⁶, 100).cost", seconds(lambda: pb.Revolve(10**6, 100).cost), 1e-3)

    def fresh() -> None:
        from pebbling.chain import mixed, mixed_hull

        mixed._by_hull.cache_clear()
        mixed_hull._locate.cache_clear()
        _ = pb.Mixed(10**6, 100).cost

    yield duration("Mixed(10⁶, 100).cost, nothing cached", seconds(fresh), 10e-3)


def tiers(peer) -> Iterator[Row]:
    """Two tiers: exact, and with a certificate."""
    peer_time = None
    if peer:
        peer_time = seconds(lambda: exhaust(iter(peer.HRevolve(200, 5, 5))), 1)
    two = [pb.Tier(5), pb.Tier(5, 2, 2)]

    def exact(steps: int) -> None:
        _ = pb.Hierarchical(steps, two, method="exact").cost

    yield duration("Hierarchical(200, 5+5), exact", seconds(lambda: exact(200), 3), 0.1, peer_time)
    yield duration("Hierarchical(10⁴, 5+5), exact", seconds(lambda: exact(10**4), 3), 0.1)
    yield duration("Hierarchical(10⁵, 5+5), exact", seconds(lambda: exact(10**5), 1), 5.0)
    hull = seconds(lambda: pb.Hierarchical(10**6, two, method="hull").cost, 3)
    yield duration("Hierarchical(10⁶, 5+5), certificate", hull, 0.1)


def uneven() -> Iterator[Row]:
    """Steps that differ."""
    generator = np.random.default_rng(0)
    rough = generator.lognormal(0, 1, 4000)
    yield duration("Uneven(n = 1000, 10 slots)", seconds(lambda: pb.Uneven(rough[:1000], slots=10).cost, 3), 0.5)
    yield duration("Uneven(n = 4000, 10 slots)", seconds(lambda: pb.Uneven(rough, slots=10).cost, 1), 6.0)
    n = 100
    lists = [generator.integers(1, 20, n) for _ in range(4)]
    sized = seconds(lambda: pb.Uneven(*lists, memory=500, units=500).cost, 3)
    yield duration("Uneven(n = 100, 500 units of memory)", sized, 0.2)


def online() -> Iterator[Row]:
    """Excess over a plan that knew the length."""
    lengths = [int(n) for n in np.geomspace(1000, 10_000, 60)]
    for slots, limit in ((5, 0.01), (10, 0.003), (20, 0.001), (50, 0.001)):
        plan = pb.Online(slots)
        excess = statistics.mean(plan.ended(n).cost.forwards / (n + binomial.advances(n, slots)) - 1 for n in lengths)
        yield (
            f"Online({slots}), mean excess, n = 10³ … 10⁴",
            f"{excess:.3%}",
            f"≤ {limit:.1%}",
            _verdict(excess <= limit),
            "–",
        )


def planner() -> Iterator[Row]:
    """From bytes to a plan."""

    def plan() -> None:
        pb.plan(10**6, "4GB", "8GB", "0.5s", "1s", memory="64GB", disk="4TB", disk_write="2GB/s", disk_read="3GB/s")

    yield duration("plan(10⁶ steps, memory and disk)", seconds(plan, 3), 1.0)


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    peer = None
    if importlib.util.find_spec("checkpoint_schedules"):
        import checkpoint_schedules as peer
    missing = [name for name in ("checkpoint_schedules", "pyrevolve") if not importlib.util.find_spec(name)]
    rows = [row for part in (streams(peer), costs(), tiers(peer), uneven(), online(), planner()) for row in part]
    lines = [
        f"# Schedules, {date.today()}",
        "",
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}; "
        f"peers not installed: {', '.join(missing) or 'none'}. "
        "Last column: times faster than the peer, checkpoint_schedules unless another is named, in the same run "
        "(its multistage schedule of 400 steps with 10 slots; its HRevolve of 200 steps with 5 + 5).",
        "",
        "| what | measured | limit | | ratio |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    print("\n".join(lines))
    if arguments.save:
        arguments.save.write_text("\n".join(lines) + "\n")
    sys.exit(any(row[3] == "MISSED" for row in rows))


if __name__ == "__main__":
    main()
