"""What was recorded: chains of steps, each a template shared by all steps that are alike.

A template says which ops ran and where their inputs came from, relative to the step: values made in it,
values of the cut (made in earlier steps, at the step's beginning), values from outside the loop, and
extras. Extras are what may differ between steps that are otherwise alike: static arguments, plain
arrays, boxes, and the chains of loops inside the step. Steps with the same extras share them as well, so
a step takes two references, and a mark for each value that crosses its end.

An example: ``for i in tape.loop(range(1000)): u = step(u, a, dt=0.1)``, with a leaf ``a`` from before the loop.

    OpCall(step, sources=((CUT, 0), (OUTER, 0)), statics=(("dt", 0),), start=0, number=1)
    StepTemplate(calls=(that,), made=1, ends=((NEW, 0),))     the cut after the step is the value it made
    extras=(0.1,)                                             what ``place`` 0 means here

All 1000 steps share the template and, as ``dt`` is the same, the extras too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .handle import Box
from .held import HeldStates
from .ops import Op

NEW, CUT, OUTER, EXTRA = range(4)
"""Where an input comes from: made in this step, the cut, outside the loop, the extras of the step."""
Source: TypeAlias = tuple[int, int]


class OpCall(NamedTuple):
    """One op, or one loop (``op`` is ``None``, and its chain the extra at ``place``)."""

    op: Op | None
    single: bool
    sources: tuple[Source, ...]
    statics: tuple[tuple[str, int], ...]
    place: int
    start: int
    number: int

    @property
    def outputs(self) -> range:
        """Its outputs among the values made in the step."""
        return range(self.start, self.start + self.number)


class StepTemplate:
    """One kind of step."""

    __slots__ = ("calls", "crossing", "ends", "given", "made")

    def __init__(self, calls: tuple[OpCall, ...], made: int, ends: tuple[Source, ...], given: tuple[int, ...]) -> None:
        self.calls, self.made, self.ends = calls, made, ends
        self.given = given
        """Which extras are arrays from outside the tape."""
        self.crossing = tuple((place, source[1]) for place, source in enumerate(ends) if source[0] == NEW)
        """The values made in the step that outlive it: their places in the next cut and in the step."""

    @property
    def marks(self) -> int:
        """How many marks a step takes."""
        return len(self.given) + len(self.crossing)

    def describe(self) -> str:
        """The ops of the step, for messages."""
        return ", ".join("a loop" if call.op is None else call.op.name for call in self.calls) or "nothing"


class RecordedChain:
    """A recorded sequence of steps: a loop, or all that a tape saw outside of loops."""

    __slots__ = ("extras", "held", "marks", "name", "offsets", "plan", "slow", "taps", "templates")

    def __init__(self, name: str) -> None:
        self.name = name
        self.templates: list[StepTemplate] = []
        self.extras: list[tuple[Any, ...]] = []
        self.marks = array("Q")
        self.offsets = array("Q")
        self.taps: dict[int, dict[int, Box]] = {}
        """By step, the values made in it that have a box."""
        self.held: HeldStates | None = None
        """What the recording itself left for the way back."""
        self.plan: Any = None
        """What finds the schedule of any later way back."""
        self.slow: int | None = None
        """The tier of its schedules that is in the store."""

    def __len__(self) -> int:
        return len(self.templates)

    def add(self, template: StepTemplate, extras: tuple[Any, ...], marks: Iterable[int]) -> None:
        """One more step."""
        if self.extras and same(self.extras[-1], extras):
            extras = self.extras[-1]
        self.templates.append(template)
        self.extras.append(extras)
        self.offsets.append(len(self.marks))
        self.marks.extend(marks)

    def remove(self) -> None:
        """Take the last step back."""
        del self.templates[-1], self.extras[-1]
        del self.marks[self.offsets.pop() :]

    def tap(self, step: int, index: int, box: Box) -> None:
        """Let a value made in a step have a box."""
        self.taps.setdefault(step, {})[index] = box

    def untap(self, step: int, index: int) -> None:
        """Take that back."""
        taps = self.taps[step]
        del taps[index]
        if not taps:
            del self.taps[step]

    def width(self, step: int) -> int:
        """How many values the cut before ``step`` has."""
        return len(self.templates[step - 1].ends) if step else 0

    def clear(self) -> None:
        """Let go of everything, in the loops inside as well."""
        if self.held is not None:
            self.held.drop()
            self.held = None
        for extras in self.extras:
            for extra in extras:
                if isinstance(extra, RecordedChain):
                    extra.clear()
        self.templates.clear()
        self.extras.clear()
        self.taps.clear()


def same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of extras are the same: the same objects, or the same plain numbers and texts."""
    return len(first) == len(second) and all(
        one is two or (type(one) is type(two) and type(one) in _PLAIN and repr(one) == repr(two))
        for one, two in zip(first, second)
    )


_PLAIN = frozenset({int, float, complex, bool, str})
