"""Snapshots compressed on their way into another store.

Lossless unless asked otherwise. ``lossy_bits`` keeps that many bits behind the binary point of
every float and clears the rest, which are noise to a compressor: the relative error is below
2^-lossy_bits, infinities and NaN stay what they are, and integers are not touched. Gradients are
then no longer bit-identical, and ``lossy`` says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import CorruptSnapshot, StoreError
from ..tree import Form, Layout, pack
from .checksum import checksum
from .codecs import as_bytes, codec_named, codec_names
from .contract import Key, Store
from .extra import require

_CODECS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
_PIECE = 1 << 28
"""Bytes that are compressed at a time: the codecs take no more than 2 GiB."""


class Compressed(Store):
    """Compresses what goes into ``store``, which it closes with itself.

    ``codec`` is one of blosclz, lz4, lz4hc, zlib and zstd, ``level`` how hard it tries, from 0 to 9; these need
    blosc2: ``pip install 'pebbling[blosc]'``. Or it is one that was given to ``register_codec``, which has a level of
    its own.
    """

    def __init__(self, store: Store, codec: str = "lz4", level: int = 5, lossy_bits: int | None = None) -> None:
        self._own = codec_named(codec)
        if codec not in _CODECS and self._own is None:
            raise ValueError(f"codec must be one of {', '.join([*_CODECS, *codec_names()])}, not {codec!r}")
        if not 0 <= level <= 9:
            raise ValueError(f"level must be from 0 to 9, not {level}")
        if lossy_bits is not None and not 0 <= lossy_bits <= 52:
            raise ValueError(f"lossy_bits must be from 0 to 52, not {lossy_bits}")
        self._blosc: Any = None if self._own is not None else require("blosc2", "blosc", "Compressed")
        self.store = store
        self.codec = codec
        self.level = level
        self.lossy_bits = lossy_bits

    @property
    def lossy(self) -> bool:  # type: ignore[override]
        return self.lossy_bits is not None or self.store.lossy or (self._own is not None and self._own.lossy)

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        return self.store.in_memory

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self.store.pickle

    def put(self, key: Key, tree: Any) -> None:
        meta, buffers = pack(tree, self.pickle)
        forms = Layout(meta, self.pickle).forms
        self.store.put(key, [meta, [self._squeeze(buffer, form) for buffer, form in zip(buffers, forms)]])

    def get(self, key: Key) -> Any:
        return self._restore(key, self.store.get(key))

    def take(self, key: Key) -> Any:
        return self._restore(key, self.store.take(key))

    def drop(self, key: Key) -> None:
        self.store.drop(key)

    def keys(self) -> list[Key]:
        return self.store.keys()

    @property
    def nbytes(self) -> int:
        """The compressed size."""
        return self.store.nbytes

    def reserve(self, count: int, nbytes: int) -> None:
        """Make sure of room as if nothing could be compressed, since that is not known before."""
        self.store.reserve(count, nbytes)

    def flush(self) -> None:
        self.store.flush()

    def close(self) -> None:
        self.store.close()

    def _squeeze(self, buffer: np.ndarray, form: Form) -> list[np.ndarray]:
        if self.lossy_bits is not None and form.fraction is not None and self.lossy_bits < form.fraction:
            buffer = _rounded(buffer, form, form.fraction - self.lossy_bits)
        if self._own is not None:
            typed = buffer if form.dtype is None else buffer.view(form.dtype).reshape(form.shape)
            check = np.array([checksum(buffer)], np.uint64).view(np.uint8)
            # Bytes that no codec of numbers knows are kept as they are.
            return [check, typed.copy() if form.dtype is None else as_bytes(self._own.encode(typed)).copy()]
        codec = self._blosc.Codec[self.codec.upper()]
        pieces = (buffer[start : start + _PIECE] for start in range(0, buffer.size, _PIECE))
        return [
            np.frombuffer(
                self._blosc.compress2(piece, codec=codec, clevel=self.level, typesize=min(form.word, 255)), np.uint8
            )
            for piece in pieces
        ]

    def _restore(self, key: Key, held: Any) -> Any:
        try:
            meta, squeezed = held
            layout = Layout(meta, self.pickle)
            if self._own is not None:
                return self._decoded(key, layout, squeezed)
            buffers, finish = layout.allocate() if self._fits(layout, squeezed) else ([], None)
            if finish is None:
                raise CorruptSnapshot(f"snapshot {key!r} is not of the size that it says")
            for buffer, pieces in zip(buffers, squeezed, strict=True):
                for number, piece in enumerate(pieces):
                    self._blosc.decompress2(piece, dst=buffer[number * _PIECE : (number + 1) * _PIECE])
        except StoreError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise CorruptSnapshot(f"snapshot {key!r} can't be decompressed: {error}") from error
        return finish()

    def _decoded(self, key: Key, layout: Layout, squeezed: Any) -> Any:
        """The same with a codec of somebody else's."""
        assert self._own is not None
        buffers, finish = layout.allocate()
        for buffer, form, (check, content) in zip(buffers, layout.forms, squeezed, strict=True):
            found = content if form.dtype is None else as_bytes(self._own.decode(content.tobytes()))
            buffer[...] = found
            if not self.lossy and checksum(buffer) != int(check.view(np.uint64)[0]):
                raise CorruptSnapshot(
                    f"snapshot {key!r} is not what was written: if {self.codec!r} loses anything, register it with "
                    "lossy=True"
                )
        return finish()

    def _fits(self, layout: Layout, squeezed: Any) -> bool:
        """Whether the compressed pieces say that they hold as many bytes as there are to be; before any are taken."""
        told = [self._blosc.get_cbuffer_sizes(piece)[0] for pieces in squeezed for piece in pieces]
        return sum(told) == layout.nbytes and all(0 <= size <= _PIECE for size in told)


def _rounded(buffer: np.ndarray, form: Form, cleared: int) -> np.ndarray:
    """A copy with the last bits of every float cleared, towards zero, but for infinities and NaN."""
    order = form.dtype.byteorder if form.dtype is not None else "="
    words = buffer.view(np.dtype(f"u{form.word}").newbyteorder(order)).astype(f"u{form.word}")
    exponent = _exponent(form)
    mask = ~np.array((1 << cleared) - 1, words.dtype)
    finite = (words & exponent) != exponent
    np.bitwise_and(words, mask, out=words, where=finite)
    return words.astype(np.dtype(words.dtype).newbyteorder(order)).view(np.uint8)


def _exponent(form: Form) -> np.ndarray:
    assert form.fraction is not None
    bits = 8 * form.word - 1
    return np.array((1 << bits) - (1 << form.fraction), f"u{form.word}")
