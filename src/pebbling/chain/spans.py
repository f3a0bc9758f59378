"""A schedule as a tree of spans: one description from which actions, arrays, counts and positions follow.

A span is a tuple of integers that names a subproblem ("reverse 12 steps with 3 slots"); its first
entry is the number of steps it reverses. ``schedule.expand(span)`` lists what it consists of, in
order, with steps counted from the start of the span: actions, runs (``Each``) and smaller spans
(``Sub``). Optimal schedules repeat the same few spans (100 to 1300 distinct ones up to 10⁷ steps),
so whatever is computed once a span is cheap however long the stream is. A span leaves every slot
that it did not find in use as it found it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from .actions import Action, Record, Reverse

Span: TypeAlias = tuple[int, ...]


class Each(NamedTuple):
    """``Record`` of steps ``start … stop-1``, or ``Reverse`` of them from the last to the first."""

    kind: type[Record] | type[Reverse]
    start: int
    stop: int


class Sub(NamedTuple):
    """A smaller span that begins ``offset`` steps after the one that holds it."""

    offset: int
    span: Span


Item: TypeAlias = Action | Each | Sub


class Spans(Protocol):
    """What a schedule provides so that the rest follows."""

    @property
    def root(self) -> Span:
        """The span that is the whole schedule."""

    def expand(self, span: Span) -> Sequence[Item]:
        """What a span consists of, in order."""

    def origin(self, span: Span) -> int:
        """The step at which a span begins, where steps differ in size; anything where they don't."""


def inner_first(spans: Spans, span: Span, known: Container[Span]) -> Iterator[tuple[Span, Sequence[Item]]]:
    """Every span inside ``span`` that is not ``known``, with its items, after all that it consists of."""
    stack: list[tuple[Span, Sequence[Item] | None]] = [(span, None)]
    seen: set[Span] = set()
    while stack:
        current, items = stack.pop()
        if items is not None:
            yield current, items
        elif current not in seen and current not in known:
            seen.add(current)
            items = spans.expand(current)
            stack.append((current, items))
            stack += [(item.span, None) for item in items if type(item) is Sub]
