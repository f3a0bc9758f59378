"""Ten thousand ranks with node-local disks against a shared file system, by pebbling's own planner.

    python benchmarks/scaling_out.py                                 bandwidths as below
    python benchmarks/scaling_out.py --measure DIR --save FILE       the node's disk as measured in DIR

A simulation of 10 000 steps, 1 GB of state a rank, 50 ms a step, has 16 GB a rank for snapshots. What does a disk
save? The planner is asked for one rank: with its share of the node's disk, with its share of a shared file system, and
without any. All ranks run the same plan, so a step is as slow as its slowest rank, and shares are even: a share of the
shared file system shrinks with the ranks, and a share of a node's disk does not.

What this leaves out: the network that the steps themselves need, and file systems that get slower than their share
when many ask at once, as most do.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

import pebbling as pb
from pebbling.store import Disk

STEPS, STATE, FORWARD, MEMORY = 10_000, 10**9, 0.05, 16 * 10**9
RANKS_A_NODE = 4
SHARED = 500e9
"""Bytes per second of the whole shared file system, both ways."""
ROOM = 1000 * 10**9
"""Bytes on disk for each rank."""


def measured(folder, size=1 << 28, rounds=3):
    """Bytes per second of a store in ``folder``: written to the device, and read with checks."""
    state, write, read = np.random.default_rng(0).random(size // 8), [], []
    with tempfile.TemporaryDirectory(dir=folder) as path, Disk(path, durable=True) as store:
        for _ in range(rounds):
            start = time.perf_counter()
            store.put("a", state)
            write.append(time.perf_counter() - start)
            start = time.perf_counter()
            store.get("a")
            read.append(time.perf_counter() - start)
    return size / sorted(write)[rounds // 2], size / sorted(read)[rounds // 2]


def plans(ranks, write, read):
    """A plan by what holds its slow tier, for each of so many ranks."""
    shared = SHARED / ranks
    disks = {"memory alone": None, "node-local disk": (write, read), "shared file system": (shared, shared)}
    found = {}
    for name, speeds in disks.items():
        options = {} if speeds is None else {"disk": ROOM, "disk_write": speeds[0], "disk_read": speeds[1]}
        found[name] = pb.plan(STEPS, STATE, memory=MEMORY, forward=FORWARD, **options)
    return found


def table(write, read):
    rows = [
        "| ranks | memory alone | node-local disk | shared file system | share of it, MB/s |",
        "|---|---|---|---|---|",
    ]
    best = {}
    for ranks in (10, 100, 1000, 10_000):
        found = plans(ranks, write, read)
        hours = {name: plan.time / 3600 for name, plan in found.items()}
        rows.append(
            f"| {ranks:,} | {hours['memory alone']:.2f} h | {hours['node-local disk']:.2f} h "
            f"| {hours['shared file system']:.2f} h | {SHARED / ranks / 1e6:,.0f} |"
        )
        best[ranks] = hours
    return rows, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", help="a folder on the node's disk")
    parser.add_argument("--save")
    options = parser.parse_args()
    # A node's disk of 4 GB/s writing and 6 GB/s reading, shared by its ranks.
    write, read, told = 4e9, 6e9, "taken as"
    if options.measure:
        write, read = measured(options.measure)
        told = "measured as"
    rows, _ = table(write / RANKS_A_NODE, read / RANKS_A_NODE)
    lines = [
        f"# Scaling out, by the planner, {date.today()}",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, shared with other work. {STEPS:,} steps of "
        f"{FORWARD * 1e3:.0f} ms, {STATE / 1e9:.0f} GB of state a rank, {MEMORY / 1e9:.0f} GB of memory and "
        f"{ROOM / 1e9:.0f} GB of disk a rank. A node's disk {told} {write / 1e9:.2f} GB/s writing and {read / 1e9:.2f} "
        f"GB/s reading for its {RANKS_A_NODE} ranks, a shared file system of {SHARED / 1e9:.0f} GB/s for all. Storing "
        f"everything would take {STEPS * 3 * FORWARD / 3600:.2f} h. Times are the planner's, not of runs.",
        "",
        *rows,
    ]
    print("\n".join(lines))
    if options.save:
        Path(options.save).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
