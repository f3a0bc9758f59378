"""A field of numbers as an image that reads on light and on dark: the less a value, the more one sees through it."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

ABOVE, BELOW = (226, 138, 0), (0, 122, 196)


def image(field: np.ndarray, largest: float) -> str:
    """A PNG as a data address: positive values orange, negative ones blue, full at ``largest``."""
    share = np.clip(np.abs(field) / largest, 0.0, 1.0)
    pixels = np.empty((*field.shape, 4), np.uint8)
    pixels[..., :3] = np.where(field[..., None] > 0, ABOVE, BELOW)
    pixels[..., 3] = np.round(255 * share**0.75)
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode()


def _png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
