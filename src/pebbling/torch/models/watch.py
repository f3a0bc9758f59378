"""The first step on a GPU, measured: what the allocator really took, and what to leave free if that was too much.

The allocator hands out blocks, not bytes: up to 1 MiB of a block may stay unused. Plans for a GPU leave
a small share of the budget free for that; if a measured step is over the budget all the same, the next
call plans again with the excess left free as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .captured import Captured
    from .planner import Planner

SLACK = 0.005
"""Share of a budget on a GPU that is left to the allocator."""


class PeakWatch:
    """Measures the first forward and backward pass of one plan."""

    def __init__(self, planner: Planner, captured: Captured, plan: Any) -> None:
        self.planner, self.captured, self.plan = planner, captured, plan
        self.before = self.peak = 0
        self.done = captured.device is None

    def forward(self, run: Callable[[list[Any]], Any], last: bool = False) -> Any:
        """The forward pass, measured the first time; ``last`` if there is no backward pass."""

        def call(arguments: list[Any]) -> Any:
            if self.done:
                return run(arguments)
            torch.cuda.reset_peak_memory_stats(self.captured.device)
            self.before = torch.cuda.memory_allocated(self.captured.device)
            result = run(arguments)
            self._look(last)
            return result

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def backward(self, run: Callable[[list[Any]], Any]) -> Any:
        """The backward pass, measured the first time."""

        def call(arguments: list[Any]) -> Any:
            result = run(arguments)
            if not self.done:
                self._look(True)
            return result

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _look(self, last: bool) -> None:
        self.peak = max(self.peak, torch.cuda.max_memory_allocated(self.captured.device) - self.before)
        if last:
            self.done = True
            self.planner.seen(self.captured, self.plan, self.peak)
