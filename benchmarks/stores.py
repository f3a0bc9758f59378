"""How fast snapshots go into the stores and come back, beside plain ``ndarray.tofile`` and ``numpy.fromfile``.

    python benchmarks/stores.py [--path DIRECTORY] [--sizes 1MB 16MB 64MB] [--rounds 5] [--save FILE]

Every figure is the best of several rounds, those of the store and of the plain file taken in turn,
so that both see the same machine. Files stay in the system's cache between put and get, where the
cost of checking shows most; "from the disk" means that they were dropped from it. "durable" means
that put returns when a crash of the machine would leave the old snapshot or the new one: for the
plain file that takes another name, ``fsync``, a rename, and ``fsync`` of the directory.
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

from pebbling.store import HDF5, Compressed, Disk, Memory
from pebbling.units import format_bytes, parse_bytes

LIMIT = 0.8
STORES = {
    "Disk": (lambda path: Disk(path), False),
    "Disk, durable": (lambda path: Disk(path, durable=True), True),
    "Memory": (lambda path: Memory(), False),
    "HDF5": (lambda path: HDF5(f"{path}.h5"), False),
    "Compressed Disk, lz4": (lambda path: Compressed(Disk(path)), False),
    "Compressed Memory, lz4": (lambda path: Compressed(Memory()), False),
    "Compressed Memory, zstd": (lambda path: Compressed(Memory(), "zstd", level=1), False),
}


def field(nbytes: int) -> np.ndarray:
    """A smooth field with a little noise, as a simulation has it."""
    count = nbytes // 8
    noise = np.random.default_rng(0).normal(scale=1e-6, size=count)
    return np.sin(np.linspace(0.0, 40.0, count)) + noise


def plain_put(path: str, array: np.ndarray, durable: bool) -> None:
    """Write a plain file; if it must survive a crash, under another name first."""
    if not durable:
        array.tofile(path)
        return
    with open(path + ".new", "wb") as file:
        array.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def forget(directory: str) -> None:
    """Drop the files of a directory from the system's cache."""
    os.sync()
    for path in Path(directory).rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(make, durable: bool, array: np.ndarray, directory: str, rounds: int) -> dict[str, float]:
    """The least seconds of each action, and the bytes kept for each byte put."""
    plain = os.path.join(directory, "plain")
    repeats = max(1, min(8 if durable else 100, 2**26 // array.nbytes))
    best: dict[str, float] = {}

    def run(name: str, action) -> None:
        best[name] = min(best.get(name, np.inf), seconds(action))

    with make(os.path.join(directory, "store")) as store:
        actions = {
            "plain put": lambda: plain_put(plain, array, durable),
            "put": lambda: store.put("state", array),
            "plain get": lambda: np.fromfile(plain),
            "get": lambda: store.get("state"),
        }
        actions["put"]()
        actions["put"]()
        for _ in range(rounds):
            for name, action in actions.items():
                for _ in range(repeats):
                    run(name, action)
            if isinstance(store, Disk):
                for name in ("plain get", "get"):
                    forget(directory)
                    run(f"{name} from the disk", actions[name])
        best["kept"] = store.nbytes / array.nbytes
    os.remove(plain)
    return best


def rows_of(name: str, array: np.ndarray, best: dict[str, float]) -> list[list[str]]:
    """One row for each action."""
    rows = []
    for action in ("put", "get", "get from the disk"):
        if action not in best:
            continue
        ours, plain = (array.nbytes / best[which] / 1e6 for which in (action, f"plain {action}"))
        limited = name.startswith("Disk")
        verdict = ("holds" if ours >= LIMIT * plain else "MISSED") if limited else "–"
        limit = f"≥ {LIMIT:.2f}" if limited else "–"
        kept = f"{best['kept']:.2f}" if action == "put" else ""
        size = format_bytes(array.nbytes)
        rows.append([name, size, action, f"{ours:,.0f}", f"{plain:,.0f}", f"{ours / plain:.2f}", limit, verdict, kept])
    return rows


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--path", help="a directory on the disk to measure; the default is the system's for temporary files"
    )
    parser.add_argument("--sizes", nargs="+", default=["1MB", "16MB", "64MB"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        array = field(parse_bytes(size))
        for name, (make, durable) in STORES.items():
            with tempfile.TemporaryDirectory(dir=options.path) as directory:
                found = rows_of(name, array, measure(make, durable, array, directory, options.rounds))
            for row in found:
                print(" | ".join(row), flush=True)
            rows += found
    lines = [
        f"# Stores, {date.today()}",
        "",
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} cores. "
        "MB/s, the best of several rounds, beside `tofile` and `fromfile` of the same bytes in the same run; files in "
        "the system's cache unless said otherwise. A durable put of the plain file is written under another name, "
        "synchronised, renamed, and its directory synchronised. Kept: bytes in the store for each byte put.",
        "",
        "| store | state | | MB/s | plain | ratio | limit | | kept |",
        "|---|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    if options.save:
        options.save.write_text("\n".join(lines) + "\n")
    sys.exit(any("MISSED" in row for row in rows))


if __name__ == "__main__":
    main()
