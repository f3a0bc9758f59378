"""A place in a schedule's stream, and what a run holds there: what a resumed run needs to know."""

from __future__ import annotations

from itertools import takewhile

from .actions import Free, Record, Reverse, Snapshot, Turn
from .spans import Each, Spans, Sub
from .tally import Counter, Sum, Tally


class Position(int):
    """The index of an action in the stream, with what a run holds just before it.

    ``snapshots`` maps ``(tier, slot)`` to the step kept there, ``tapes`` lists the kept tapes as
    ranges of steps, ``forwards`` counts the evaluations of steps so far.
    """

    snapshots: dict[tuple[int, int], int]
    tapes: tuple[range, ...]
    forwards: int


def find(spans: Spans, counter: Counter, step: int) -> Position:
    """Where ``step`` is about to be reversed: down the tree, counting what is passed."""
    snapshots: dict[tuple[int, int], int] = {}
    tapes: list[range] = []
    passed = Sum(counter.model)
    base, items = 0, iter(spans.expand(spans.root))
    while True:
        item = next(items)
        if isinstance(item, Sub):
            start = base + item.offset
            if start <= step < start + item.span[0]:
                base, items = start, iter(spans.expand(item.span))
            else:
                count = counter.count(item.span)
                passed.join(count)
                if min(count.held) < 0:
                    _let_go(snapshots, count, start)
            continue
        if isinstance(item, Turn | Reverse) and base + item.step == step:
            break
        if isinstance(item, Each) and item.kind is Reverse and item.start <= step - base < item.stop:
            passed_part = Each(Reverse, step - base + 1, item.stop)
            passed.add(passed_part, base)
            _note(passed_part, base, snapshots, tapes)
            break
        passed.add(item, base)
        _note(item, base, snapshots, tapes)
    position = Position(passed.length)
    # A span that is passed whole may have freed a state that it found stored: one that is reversed by now.
    position.snapshots = {place: held for place, held in snapshots.items() if held <= step}
    position.tapes = tuple(tapes)
    position.forwards = passed.advances + passed.tapings
    return position


def _let_go(snapshots: dict[tuple[int, int], int], count: Tally, start: int) -> None:
    """Follow a span from ``start`` on that empties slots which it found in use; the last ones filled lie in it."""
    inside = takewhile(lambda place: snapshots[place] >= start, reversed(snapshots))
    for place in [place for place in inside if count.held[place[0]] < 0]:
        del snapshots[place]


def _note(item: object, base: int, snapshots: dict[tuple[int, int], int], tapes: list[range]) -> None:
    """Follow what one action does to slots and tapes; tapes are dropped in the reverse order of recording."""
    match item:
        case Snapshot(step, slot, tier):
            snapshots[tier, slot] = base + step
        case Free(_, slot, tier):
            del snapshots[tier, slot]
        case Record(step):
            tapes.append(range(base + step, base + step + 1))
        case Reverse(_):
            _drop(tapes, 1)
        case Each(kind, start, stop) if kind is Record:
            tapes.append(range(base + start, base + stop))
        case Each(kind, start, stop):
            _drop(tapes, stop - start)


def _drop(tapes: list[range], number: int) -> None:
    while number:
        last = tapes.pop()
        if len(last) > number:
            tapes.append(last[:-number])
        number -= min(number, len(last))
