"""How fast snapshots are summed, beside ``zlib.crc32`` and beside reading a file that the system has in its cache.

    python benchmarks/checksums.py [--sizes 1MB 16MB 64MB] [--rounds 9]

The best of several rounds, all three taken in turn. A store sums every byte that it writes and every byte that it
reads, so a checksum that is slower than reading halves the speed of a get.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib

import numpy as np

from pebbling.store.checksum import checksum
from pebbling.units import format_bytes, parse_bytes


def seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1MB", "16MB", "64MB"])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print("| size | ours, GB/s | CRC-32 | reading a cached file |\n|---|---|---|---|")
    for size in options.sizes:
        content = np.random.default_rng(0).integers(0, 256, int(parse_bytes(size)), np.uint8)
        with tempfile.NamedTemporaryFile() as file:
            content.tofile(file.name)
            actions = [
                lambda content=content: checksum(content),
                lambda content=content: zlib.crc32(content),
                lambda file=file: np.fromfile(file.name, np.uint8),
            ]
            best = [min(times) for times in zip(*([seconds(a) for a in actions] for _ in range(options.rounds)))]
        print(f"| {format_bytes(content.size)} | " + " | ".join(f"{content.size / t / 1e9:.1f}" for t in best) + " |")


if __name__ == "__main__":
    main()
