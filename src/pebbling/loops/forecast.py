"""What a loop would do within a budget, before it is differentiated: its schedule and its peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..chain import Online, Schedule, StoreAll
from ..chain.validate import whole
from ..tree import flatten
from ..units import parse_budget
from .frameworks import numpy_framework
from .plan import LoopBytes, measure, within
from .program import Trees


@dataclass(frozen=True)
class Forecast:
    """The schedule that a budget leads to, and the peak to expect, in bytes above what is there before."""

    schedule: Schedule
    measured: LoopBytes

    @property
    def peak(self) -> int:
        """Bytes that the run is planned to take at its peak."""
        if isinstance(self.schedule, StoreAll):
            return self.measured.working + self.schedule.steps * self.measured.tape
        return self.measured.working + int(self.schedule.cost.peak * self.measured.state)

    @property
    def forwards(self) -> float:
        """How often a step runs, on average."""
        return self.schedule.cost.forwards / max(self.schedule.steps, 1)


def forecast(body: Callable[..., Any], state: Any, steps: int, *args: Any, memory: float | str) -> Forecast:
    """How ``loop`` would be differentiated within ``memory``, with respect to all arguments.

    The first step is run and reversed to see what it takes.
    """
    leaves, structure = flatten(state)
    consts, arguments = flatten(args)
    program = Trees(body, range(whole(steps, "steps", 1)), structure, arguments)
    framework = numpy_framework()
    assert framework.engine is not None
    live = [not framework.engine.differentiable(leaf) for leaf in leaves]
    measured = measure(framework, program, leaves, consts, live + [True] * len(consts))
    schedule = within(parse_budget(memory), steps, measured, program)
    assert not isinstance(schedule, Online)
    return Forecast(schedule, measured)
