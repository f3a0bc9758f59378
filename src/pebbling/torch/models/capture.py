"""Capture through torch.compile: the traced program goes to AOTAutograd, whose partition is the plan.

AOTAutograd traces forward and backward into one functional graph and asks a partition function to cut
it in two. Ours plans it, and returns the two graphs of the plan. Nothing is decomposed and nothing is
fused, so that every operation is the one that the model would have run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from ...errors import PebblingError
from ...graph import GraphPlan
from .captured import Captured
from .partition import boxed, split, straight
from .planner import Planner
from .watch import Watch

# Enough for every shape that a training run may come across.
_SHAPES = 10_000


class Stopped(PebblingError):
    """The plan is made, and was all that was wanted."""


class Eager:
    """Backend of torch.compile that runs a plan operation by operation; with ``stop``, one that only plans."""

    def __init__(self, planner: Planner, stop: bool = False) -> None:
        self.planner, self.stop = planner, stop
        self.watch: Watch

    def __call__(self, module: fx.GraphModule, example: Sequence[Any]) -> Any:
        """Plan what was traced; what is returned runs it."""
        from torch._dynamo.backends.common import aot_autograd

        compile = aot_autograd(
            fw_compiler=lambda module, _: self.watch.forward(boxed(module)),
            bw_compiler=lambda module, _: self.watch.backward(boxed(module)),
            inference_compiler=self._without_backward,
            partition_fn=self._partition,
            decompositions={},
        )
        return compile(module, example)

    def _partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **_: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        captured, plan = self._plan(joint, num_fwd_outputs)
        forward, backward = split(plan, captured.module, num_fwd_outputs, captured.states)
        return forward, backward

    def _without_backward(self, module: fx.GraphModule, inputs: Any) -> Any:
        results = next(node for node in module.graph.nodes if node.op == "output").args[0]
        captured, plan = self._plan(module, len(results))
        return self.watch.forward(boxed(straight(plan, captured.module, captured.states)), last=True)

    def _plan(self, module: fx.GraphModule, outputs: int) -> tuple[Captured, GraphPlan]:
        result = self.planner.plan(module, outputs, overwritten(module))
        if self.stop:
            raise Stopped
        self.watch = Watch(self.planner, result[0], self.planner.made[-1])
        return result


def settings(backend: str = "eager") -> ExitStack:
    """Settings of torch that hold while a model is captured or run."""
    stack = ExitStack()
    changes: dict[str, Any] = {
        "recompile_limit": _SHAPES,
        "accumulated_recompile_limit": _SHAPES,
        # Inside of DDP, torch would cut the model at its buckets, and each piece would be planned alone.
        "optimize_ddp": False,
    }
    if backend == "eager":
        changes["enable_dynamo_decompositions"] = False
    known = {name: value for name, value in changes.items() if hasattr(torch._dynamo.config, name)}
    stack.enter_context(torch._dynamo.config.patch(known))
    if backend == "eager":
        # A donated buffer could not be read by a second backward of a retained graph.
        stack.enter_context(torch._functorch.config.patch(donated_buffer=False))
    return stack


def compiled(function: Callable[..., Any], backend: Any, whole: bool) -> Callable[..., Any]:
    """The function, captured anew for every shape; ``whole`` refuses what can't be captured."""
    import torch._dynamo.config
    import torch._functorch.config

    return torch.compile(function, backend=backend, fullgraph=whole, dynamic=False)


def overwritten(module: fx.GraphModule) -> list[str]:
    """Names of the inputs that the program changes in place, which happens when the forward pass is over."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    # AOTAutograd notes for every result what it is: for such an input its new value.
    changed = [getattr(note, "mutated_input", None) for note in output.meta.get("desc") or ()]
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [node.name for node in placeholders if node.meta.get("desc") in [note for note in changed if note]]
