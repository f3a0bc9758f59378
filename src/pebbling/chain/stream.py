"""The stream of actions of a schedule, one by one.

Memory does not grow with the length of the stream: the walk keeps a stack as deep as the tree of
spans, leaves a span before it enters that span's last part, and remembers a bounded number of
spans. Spans of few steps are spelled out once and then only shifted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from .actions import (
    ADVANCE,
    END_FORWARD,
    KINDS,
    RECORD,
    Action,
    Advance,
    EndForward,
    Record,
    to_row,
)
from .spans import Each, Item, Span, Spans, Sub
from .tally import Counter

_SHORT = 16
_REMEMBERED = 1_000

_Run: TypeAlias = list[tuple[int, int, int, int]]  # kind, start, stop or slot, tier
_Piece: TypeAlias = _Run | Each | Sub


def actions(spans: Spans, start: int = 0, counter: Counter | None = None) -> Iterator[Action]:
    """The stream from its ``start``-th action on; to begin later than at 0 takes a ``counter``."""
    new: Any = tuple.__new__
    skip = start
    known: dict[Span, list[_Piece]] = {}
    stack: list[tuple[int, Iterator[_Piece]]] = [(0, iter([Sub(0, spans.root)]))]
    while stack:
        base, pieces = stack[-1]
        piece = next(pieces, None)
        if piece is None:
            stack.pop()
        elif type(piece) is list:
            for kind, first, second, tier in piece[skip:] if skip else piece:
                if kind >= RECORD:
                    yield new(KINDS[kind], (first + base,)) if kind != END_FORWARD else EndForward()
                elif kind == ADVANCE:
                    yield new(Advance, (first + base, second + base))
                else:
                    yield new(KINDS[kind], (first + base, second, tier))
            skip = max(0, skip - len(piece))
        elif type(piece) is Each:
            steps = range(piece.start + base, piece.stop + base)
            for step in (steps if piece.kind is Record else steps[::-1])[skip:]:
                yield new(piece.kind, (step,))
            skip = max(0, skip - len(steps))
        elif type(piece) is Sub:
            if skip and counter is not None and (length := counter.count(piece.span).length) <= skip:
                skip -= length
                continue
            if len(known) > _REMEMBERED:
                known.clear()
            if piece.span not in known:
                known[piece.span] = _pieces(spans, piece.span)
            if pieces.__length_hint__() == 0:  # type: ignore[attr-defined]
                stack.pop()
            stack.append((base + piece.offset, iter(known[piece.span])))


def _pieces(spans: Spans, span: Span) -> list[_Piece]:
    """The items of a span, with neighbouring actions and short spans spelled out as one run."""
    pieces: list[_Piece] = []
    todo: list[tuple[int, Item]] = [(0, item) for item in reversed(spans.expand(span))]
    while todo:
        base, item = todo.pop()
        if isinstance(item, Sub):
            if item.span[0] > _SHORT:
                pieces.append(Sub(base + item.offset, item.span))
            else:
                todo += [(base + item.offset, inner) for inner in reversed(spans.expand(item.span))]
        elif isinstance(item, Each):
            pieces.append(Each(item.kind, base + item.start, base + item.stop))
        else:
            start, stop, slot, tier, kind = to_row(item)
            if not (pieces and type(pieces[-1]) is list):
                pieces.append([])
            run: Any = pieces[-1]
            run.append((kind, start + base, stop + base if kind == ADVANCE else slot, tier))
    return pieces
