"""A checksum that keeps up with memory, for bytes on their way to a file and back.

The bytes are words of 64 bits in tables of 512 rows of 1021. The sums of the rows and the sums of the columns,
modulo 2⁶⁴, go through a CRC-32 each, and so do the bytes that fill no row: 20 to 30 GB/s where CRC-32 alone is 3 to
7, and reading a cached file is 4 to 25. A single flipped bit is found for certain: it adds ±2ᵏ to the sum of its
row, which flips a run of at most 64 neighbouring bits of it, and no such run is a multiple of the polynomial of
CRC-32, whose order is 2³²-1. Two words that were exchanged differ in two rows or in two columns, and are found, as
lost, stale, zeroed and exchanged pages are, but for one chance in 2³². What is not found are changes of four words
at the corners of a rectangle that leave both of its rows and both of its columns their sums.
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
_LOW = (1 << 32) - 1
LARGEST = (1 << 64) - 1


def checksum(data: np.ndarray, value: int = 0, move: Callable[[np.ndarray], None] | None = None) -> int:
    """The checksum of an array of bytes, continued from ``value``; ``move`` brings each piece before it is summed."""
    by_rows, by_columns = value & _LOW, value >> 32
    rows = data.size // ROW
    if rows:
        words = data[: rows * ROW].view(np.uint64).reshape(rows, _WORDS)
        sums = np.empty(rows, np.uint64)
        for row in range(0, rows, _ROWS):
            table = words[row : row + _ROWS]
            if move is not None:
                move(data[row * ROW : (row + len(table)) * ROW])
            np.add.reduce(table, axis=1, out=sums[row : row + _ROWS])
            by_columns = zlib.crc32(np.add.reduce(table, axis=0).data, by_columns)
        by_rows = zlib.crc32(sums.data, by_rows)
        data = data[rows * ROW :]
    if move is not None and data.size:
        move(data)
    return by_columns << 32 | zlib.crc32(data.data, by_rows)


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
