"""Capture through torch.compile: the traced program goes to AOTAutograd, whose partition is the plan.

AOTAutograd traces forward and backward into one functional graph and asks a partition function to cut
it in two. Ours plans it, and returns the two graphs of the plan. Nothing is decomposed and nothing is
fused, so that every operation is the one that the model would have run.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from ...errors import CaptureError, PebblingError
from ...graph import GraphPlan
from .captured import Captured
from .partition import boxed, overwritten, results_of, split, straight
from .planner import Planner
from .reached import Reached
from .refusals import refuse
from .tracing import eager_kernels, host_layouts, untraced
from .watch import PeakWatch

# Enough for every shape that a training run may come across.
_SHAPES = 10_000


class Stopped(PebblingError):
    """The plan is made, and was all that was wanted."""


class Eager:
    """Backend of torch.compile that runs a plan operation by operation; with ``stop``, one that only plans."""

    kind = "eager"

    def __init__(self, planner: Planner, function: Callable[..., Any], stop: bool = False) -> None:
        self.planner, self.stop = planner, stop
        # Compiled code holds its backend until the model is gone, which with it in there would be never.
        self.function = _weakly(function)
        self.watch: PeakWatch
        self.reached: Reached

    def __call__(self, module: fx.GraphModule, example: Sequence[Any]) -> Any:
        """Plan what was traced; what is returned runs it."""
        from torch._dynamo.backends.common import aot_autograd

        self.reached = reached = Reached()
        compile = aot_autograd(
            fw_compiler=self._forward,
            bw_compiler=lambda module, _: self.watch.backward(reached.backward(module)),
            inference_compiler=self._without_backward,
            partition_fn=self._partition,
            decompositions={},
        )
        refuse(module, self.planner.name, self.function())
        with eager_kernels():
            return reached.watched(compile(module, example))

    def _partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **_: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        self.reached.learn(joint, num_fwd_outputs)
        captured, plan = self._plan(joint, num_fwd_outputs)
        forward, backward = split(plan, captured.module, num_fwd_outputs, captured.states)
        return forward, backward

    def _forward(self, module: fx.GraphModule, inputs: Any) -> Any:
        context = torch._guards.TracingContext.try_get()
        facts = getattr(context, "fw_metadata", None)
        if facts is not None:
            # None would be taken for some by a second backward of a retained graph, which could not read them.
            facts.bw_donated_idxs = []
        return self.watch.forward(boxed(module))

    def _without_backward(self, module: fx.GraphModule, inputs: Any) -> Any:
        captured, plan = self._plan(module, len(results_of(module)))
        return self.watch.forward(boxed(straight(plan, captured.module, captured.states)), last=True)

    def _plan(self, module: fx.GraphModule, outputs: int) -> tuple[Captured, GraphPlan]:
        result = self.planner.plan(module, outputs, overwritten(module))
        if self.stop:
            raise Stopped
        self.watch = PeakWatch(self.planner, result[0], self.planner.made[-1])
        return result


def settings(backend: str = "eager") -> ExitStack:
    """Settings of torch that hold while a model is captured."""
    stack = ExitStack()
    changes: dict[str, Any] = {
        "recompile_limit": _SHAPES,
        "accumulated_recompile_limit": _SHAPES,
        # Inside of DDP, torch would cut the model at its buckets, and each piece would be planned alone.
        "optimize_ddp": False,
        # Hooks that come or go, and parameters that become one, are captured anew.
        "skip_nnmodule_hook_guards": False,
        "skip_no_tensor_aliasing_guards_on_parameters": False,
    }
    if backend == "eager":
        changes["enable_dynamo_decompositions"] = False
        # cuDNN's recurrent kernels keep states of their own.
        changes["allow_rnn"] = not torch.cuda.is_available()
        # Traced, NumPy's functions would become torch's, which round differently.
        changes["trace_numpy"] = False
    known = {name: value for name, value in changes.items() if hasattr(torch._dynamo.config, name)}
    stack.enter_context(torch._dynamo.config.patch(known))
    if backend == "eager":
        stack.enter_context(untraced())
        stack.enter_context(host_layouts())
        # Eager mode's backward pass runs without autocast.
        if hasattr(torch._functorch.config, "backward_pass_autocast"):
            stack.enter_context(torch._functorch.config.patch(backward_pass_autocast="off"))
        # A donated buffer could not be read by a second backward of a retained graph.
        stack.enter_context(torch._functorch.config.patch(donated_buffer=False))
        # Else numbers that nobody reads would not be drawn, and all that come after them be others.
        stack.enter_context(torch._inductor.config.patch(fallback_random=True))
    return stack


def compiled(function: Callable[..., Any], backend: Any, whole: bool) -> Callable[..., Any]:
    """The function, captured anew for every shape; ``whole`` refuses what can't be captured."""
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    context: Any = torch._dynamo.optimize(backend=Lent(backend), nopython=whole, dynamic=False)
    if not hasattr(context, "callback"):
        raise CaptureError("torch's tracer is off: unset TORCHDYNAMO_DISABLE, or leave fit out")
    context.callback = SettledTracer(context.callback, backend)
    captured: Callable[..., Any] = context(function)
    return captured


def _weakly(function: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(function)
    except TypeError:
        return lambda: None


class Lent:
    """A backend as torch gets it: torch keeps backends for good, and with it would keep the model."""

    def __init__(self, backend: Any) -> None:
        self._backend = weakref.ref(backend)

    def __call__(self, module: fx.GraphModule, example: Sequence[Any]) -> Any:
        """What the backend does, which lives as long as the function that was captured."""
        backend = self._backend()
        assert backend is not None
        return backend(module, example)


class SettledTracer:
    """The tracer with our settings: they hold while it traces and compiles, and calls of what it made cost nothing."""

    def __init__(self, tracer: Any, backend: Any) -> None:
        # torch recognizes what it compiled by attributes of the tracer. It looks them up while frames are watched: they
        # have to be there, since a function that fetched them would be watched too.
        functools.update_wrapper(self, tracer)
        self._tracer, self._backend = tracer, backend

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Trace one frame, which torch asks for when it has nothing compiled that fits the arguments."""
        with settings(self._backend.kind):
            return self._tracer(*args, **kwargs)
