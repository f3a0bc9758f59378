"""The stream of actions of a schedule as NumPy arrays, for whoever wants millions of them a second.

Spans of up to ``_SHORT`` steps become one array each, built from those inside them; a longer span
is walked, and the arrays of its parts are copied and shifted into place. Copying dominates, so
this runs at memory speed without a compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from .actions import CODES, ROW, Record, encode
from .spans import Each, Span, Spans, Sub, inner_first

CHUNK = 1 << 16
_SHORT = 1024
_REMEMBERED = 4_000
_WORDS = ROW.itemsize // 8  # a row is start, stop, and a word with the rest

_SHIFTED = np.tile(np.array([1, 1, 0]), CHUNK)

_Piece: TypeAlias = np.ndarray | Sub | Each


def chunks(spans: Spans) -> Iterator[np.ndarray]:
    """The stream as arrays of dtype ``ROW``, all but the last of them ``CHUNK`` rows long."""
    size = _WORDS * CHUNK
    filled, chunk = 0, np.empty(size, np.int64)
    for words, shift in _arrays(spans):
        done, length = 0, len(words)
        while done < length:
            taken = min(length - done, size - filled)
            part = words if taken == length else words[done : done + taken]
            np.add(part, _SHIFTED[:taken] * shift, out=chunk[filled : filled + taken])
            filled, done = filled + taken, done + taken
            if filled == size:
                yield chunk.view(ROW)
                filled, chunk = 0, np.empty(size, np.int64)
    if filled:
        yield chunk[:filled].copy().view(ROW)


def _arrays(spans: Spans) -> Iterator[tuple[np.ndarray, int]]:
    """Rows as flat words, in the order of the stream, each with the number of steps to shift it by."""
    known: dict[Span, list[_Piece]] = {}
    stack: list[tuple[int, Iterator[_Piece]]] = [(0, iter([Sub(0, spans.root)]))]
    while stack:
        base, pieces = stack[-1]
        piece = next(pieces, None)
        if piece is None:
            stack.pop()
        elif type(piece) is np.ndarray:
            yield piece, base
        elif type(piece) is Sub:
            if len(known) > _REMEMBERED:
                known.clear()
            if piece.span not in known:
                known[piece.span] = _pieces(spans, piece.span, known)
            if pieces.__length_hint__() == 0:  # type: ignore[attr-defined]
                stack.pop()
            stack.append((base + piece.offset, iter(known[piece.span])))
        else:
            assert isinstance(piece, Each)
            for first in range(0, piece.stop - piece.start, CHUNK):
                yield _run(piece, first, min(first + CHUNK, piece.stop - piece.start)), base


def _pieces(spans: Spans, span: Span, known: dict[Span, list[_Piece]]) -> list[_Piece]:
    """The items of a span, with neighbouring actions and short spans joined into one array."""
    pieces: list[_Piece] = []
    joined: list[np.ndarray] = []

    def close() -> None:
        if joined:
            pieces.append(np.concatenate(joined))
            joined.clear()

    for item in spans.expand(span):
        if isinstance(item, Sub) and item.span[0] <= _SHORT:
            words = _whole(spans, item.span, known)
            shifts = np.resize(_SHIFTED, len(words)) if len(words) > len(_SHIFTED) else _SHIFTED[: len(words)]
            joined.append(words + shifts * item.offset)
        elif isinstance(item, Each) and item.stop - item.start <= _SHORT:
            joined.append(_run(item, 0, item.stop - item.start))
        elif isinstance(item, Sub | Each):
            close()
            pieces.append(item)
        else:
            joined.append(encode([item]).view(np.int64))
    close()
    return pieces


def _whole(spans: Spans, span: Span, known: dict[Span, list[_Piece]]) -> np.ndarray:
    """All rows of a short span."""
    for inner, _ in inner_first(spans, span, known):
        known[inner] = _pieces(spans, inner, known)
    words = known[span]
    assert len(words) <= 1
    return words[0] if words else np.empty(0, np.int64)  # type: ignore[return-value]


def _run(run: Each, first: int, last: int) -> np.ndarray:
    rows = np.zeros(last - first, ROW)
    order = np.arange(first, last)
    rows["start"] = run.start + order if run.kind is Record else run.stop - 1 - order
    rows["stop"] = rows["start"] + 1
    rows["kind"] = CODES[run.kind]
    return rows.view(np.int64)
