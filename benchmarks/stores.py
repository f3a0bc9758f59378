"""How fast snapshots go into the stores and come back, beside plain ``ndarray.tofile`` and ``numpy.fromfile``.

    python benchmarks/stores.py [--path DIRECTORY] [--sizes 1MB 16MB 256MB] [--rounds 5]

Every figure is the best of several rounds, those of the store and of the plain file taken in turn,
so that both see the same machine. Files stay in the system's cache between put and get, where the
cost of checking shows most. "durable" means that put returns when the bytes are on the disk; the
plain file is then synchronised as well.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np

from pebbling.store import HDF5, Compressed, Disk, Memory
from pebbling.units import format_bytes, parse_bytes

STORES = {
    "Memory": (lambda path: Memory(), False),
    "Disk": (lambda path: Disk(path), False),
    "Disk, durable": (lambda path: Disk(path, durable=True), True),
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
    with open(path, "wb") as file:
        array.tofile(file)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(make, durable: bool, array: np.ndarray, directory: str, rounds: int) -> dict[str, float]:
    """The least seconds of each action."""
    plain = os.path.join(directory, "plain")
    repeats = max(1, min(8 if durable else 100, 2**26 // array.nbytes))
    best: dict[str, float] = {}
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
                best[name] = min([best.get(name, np.inf), *(seconds(action) for _ in range(repeats))])
        best["ratio"] = store.nbytes / array.nbytes
    os.remove(plain)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--path", help="a directory on the disk to measure; the default is the system's for temporary files"
    )
    parser.add_argument("--sizes", nargs="+", default=["1MB", "16MB", "256MB"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{'store':<24}{'state':>9}{'put MB/s':>10}{'to plain':>10}{'get MB/s':>10}{'to plain':>10}{'kept':>7}")
    for size in options.sizes:
        array = field(parse_bytes(size))
        for name, (make, durable) in STORES.items():
            with tempfile.TemporaryDirectory(dir=options.path) as directory:
                best = measure(make, durable, array, directory, options.rounds)
            put, get = (array.nbytes / best[action] / 1e6 for action in ("put", "get"))
            print(
                f"{name:<24}{format_bytes(array.nbytes):>9}{put:>10,.0f}{best['plain put'] / best['put']:>10.2f}"
                f"{get:>10,.0f}{best['plain get'] / best['get']:>10.2f}{best['ratio']:>7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
