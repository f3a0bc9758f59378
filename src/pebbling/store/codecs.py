"""Codecs of others for ``Compressed``: a name, how to write an array, how to read it, and whether that loses anything.

    register_codec("zfp", zfpy.compress_numpy, lambda squeezed: zfpy.decompress_numpy(squeezed))
    Compressed(Disk(path), "zfp")

What is said to lose nothing is held to it: a checksum of what went in is kept, and what comes out must have it. What
loses something must be said to, and then the report of a run says that its gradient is not exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Codec(NamedTuple):
    """How arrays are written and read."""

    encode: Callable[[np.ndarray], Any]
    """From an array of its own type and shape to bytes."""
    decode: Callable[[bytes], Any]
    """From these bytes to an array of as many values."""
    lossy: bool


_REGISTERED_CODECS: dict[str, Codec] = {}


def register_codec(
    name: str, encode: Callable[[np.ndarray], Any], decode: Callable[[bytes], Any], *, lossy: bool = False
) -> None:
    """Let ``Compressed(store, name)`` write arrays with ``encode`` and read them with ``decode``.

    >>> import zlib, numpy as np
    >>> from pebbling.store import Compressed, Memory
    >>> register_codec("plain zlib", lambda array: zlib.compress(array.tobytes(), 1), zlib.decompress)
    >>> with Compressed(Memory(), "plain zlib") as store:
    ...     store.put("a", np.zeros(1000))
    ...     print(store.get("a").sum(), store.nbytes < 300)
    0.0 True
    """
    if not callable(encode) or not callable(decode):
        raise TypeError("encode and decode are functions")
    _REGISTERED_CODECS[name] = Codec(encode, decode, lossy)


def codec_named(name: str) -> Codec | None:
    """The codec that was registered under that name."""
    return _REGISTERED_CODECS.get(name)


def codec_names() -> list[str]:
    """The names of all that were registered."""
    return sorted(_REGISTERED_CODECS)


def as_bytes(array: Any) -> np.ndarray:
    """What a codec gave, as bytes; a copy where it is not dense."""
    if isinstance(array, bytes | bytearray | memoryview):
        return np.frombuffer(array, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
