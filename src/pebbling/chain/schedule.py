"""What every schedule is: a frozen value with a cost, a stream of actions, and positions in that stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from . import arrays, stream
from .actions import Action
from .cost import Cost, Model
from .position import Position, find
from .spans import Item, Span
from .tally import Counter, Tally, by_step
from .validate import whole


class Schedule(ABC):
    """A plan over a chain of steps.

    A family says what it costs (``model``) and how it splits (``root`` and ``expand``); iteration,
    ``chunks``, ``seek`` and, where a family has no closed form, ``cost`` follow from that.
    """

    steps: int

    @property
    @abstractmethod
    def model(self) -> Model:
        """What the schedule may hold and what its actions take."""

    @property
    @abstractmethod
    def root(self) -> Span:
        """The span that is the whole schedule."""

    @abstractmethod
    def expand(self, span: Span) -> Sequence[Item]:
        """What a span consists of, in order."""

    def origin(self, span: Span) -> int:
        """The step at which a span begins; needed only where the model has sizes step by step."""
        return 0

    def closed(self, span: Span) -> Tally | None:
        """The counts of a span in closed form, where the family knows them."""
        return None

    @cached_property
    def counter(self) -> Counter:
        """Counts the spans of this schedule."""
        return Counter(self, self.model, self.closed)

    @property
    def cost(self) -> Cost:
        """What the schedule takes, found without iterating it."""
        count, model = self.counter.count(self.root), self.model
        return cost_of(model, count, by_step(self, self.steps) if isinstance(model.forward, tuple) else None)

    def __iter__(self) -> Iterator[Action]:
        return stream.actions(self)

    def __getstate__(self) -> dict[str, object]:
        # What is cached can be found again, and may be large.
        return {k: v for k, v in vars(self).items() if not isinstance(getattr(type(self), k, None), cached_property)}

    def since(self, index: int) -> Iterator[Action]:
        """The actions from the ``index``-th on, without walking through those before."""
        return stream.actions(self, index, self.counter) if whole(index, "index", 0) else iter(self)

    def chunks(self) -> Iterator[np.ndarray]:
        """The same actions as NumPy arrays of dtype ``pebbling.chain.ROW``, one row an action."""
        return arrays.chunks(self)

    def seek(self, step: int) -> Position:
        """The position in the stream at which ``step`` is about to be reversed."""
        step = whole(step, "step", 0)
        if step >= self.steps:
            raise ValueError(f"step {step} is not in this schedule of {self.steps} steps")
        return find(self, self.counter, step)


def cost_of(model: Model, count: Tally, advanced: Sequence[int] | None = None) -> Cost:
    """The cost that goes with the counts of a whole schedule; ``advanced`` counts the advances of each step."""
    return Cost(
        forwards=count.advances + count.tapings,
        advances=count.advances,
        stores=sum(count.stores),
        restores=sum(count.restores),
        peak=count.highs[0],
        time=model.time(count.advances if advanced is None else advanced, count.stores, count.restores),
        tapes=count.most_tapes,
        peaks=count.highs,
    )
