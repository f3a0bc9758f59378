"""Capture for inductor: torch.compile's own compiler, with the plan as its cut between forward and backward.

Everything is inductor's, its passes, its fusion, its kernels, but for one hook: the function that cuts
the joint graph in two. It hands out torch's own cut where that fits, and else that of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch._functorch.config
import torch._inductor.config
from torch import fx
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass, CustomPartitionerFn
from torch._subclasses import FakeTensorMode

from ...graph import GraphPlan, solve
from .captured import fingerprint
from .cut import join, own_cut
from .emit import emit
from .fusion import Fused, fused
from .partition import copied, overwritten, results_of


class Choice(Protocol):
    """What decides about the cut of a graph, which it knows by its fingerprint."""

    def freely(self, fingerprint: str) -> bool:
        """Which of torch's own cuts planning begins with, see ``cut``."""

    def plan(self, what: Fused, fingerprint: str) -> GraphPlan:
        """The plan for what that cut stores."""


@dataclass(frozen=True)
class Compiled:
    """A compiled graph: how to run it, its plan, and which arguments it changes in place."""

    run: Callable[..., Any]
    plan: GraphPlan
    what: Fused
    fingerprint: str
    changed: frozenset[int] | None
    """Positions; None if torch does not tell."""


def compile_with(
    choice: Choice, module: fx.GraphModule, arguments: Sequence[Any], most: int | None = None, name: str = ""
) -> Compiled:
    """Compile a traced module with the plan that ``choice`` makes for the graph of its stored values.

    ``most`` bounds the bytes that measuring one operation may take.
    """
    cut = Cut(choice, most, name)
    context = torch._guards.TracingContext(FakeTensorMode(allow_non_fake_inputs=True))
    with ExitStack() as stack:
        stack.enter_context(torch._guards.tracing(context))
        stack.enter_context(torch._inductor.config.patch(custom_partitioner_fn=cut, joint_custom_post_pass=Seen(cut)))
        # What is cached under the program alone would be handed out without asking for a cut.
        stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
        stack.enter_context(drawn_one_way())
        run: Any = compile_fx(copied(module), list(arguments))
    if cut.made is None:
        cut.without_backward()
    assert cut.made is not None
    return Compiled(run, *cut.made, changed=_changed(context))


@contextmanager
def drawn_one_way() -> Iterator[None]:
    """Let all kernels draw random numbers by the same function.

    Newer torch has two for GPUs, with other numbers, and takes the one or the other by the shape of the kernel: a
    dropout that is drawn again in another kernel would be another dropout.
    """
    from torch._inductor.codegen.triton import TritonOverrides

    overrides: Any = TritonOverrides
    chosen = overrides.__dict__.get("_can_use_4x_random")
    if chosen is None:
        yield
        return
    overrides._can_use_4x_random = staticmethod(lambda: False)
    try:
        yield
    finally:
        overrides._can_use_4x_random = chosen


class Cut(CustomPartitionerFn):
    """The hook: cuts a joint graph as the plan says, and remembers what it did."""

    def __init__(self, choice: Choice, most: int | None, name: str) -> None:
        self.choice, self.most, self.name = choice, most, name
        self.made: tuple[GraphPlan, Fused, str] | None = None
        self.last: fx.Graph | None = None

    def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Forward and backward graph of a joint one."""
        own, outputs = fingerprint(gm), kwargs["num_fwd_outputs"]
        changed = overwritten(gm)
        forward, backward = own_cut(gm, joint_inputs, changed, self.choice.freely(own), **kwargs)
        module, later = join(forward, backward, outputs)
        what = fused(module, outputs, later, changed, self.most, self.name)
        plan = self.choice.plan(what, own)
        self.made = (plan, what, own)
        return emit(plan, what, gm) if plan.replayed else (forward, backward)

    def without_backward(self) -> None:
        """Note a graph that was not cut, since it has no backward pass."""
        assert self.last is not None
        taken = [str(node.target) for node in self.last.nodes if node.op == "get_attr"]
        module = fx.GraphModule(dict.fromkeys(taken), self.last)
        what = fused(module, len(results_of(module)), most=self.most, name=self.name)
        self.made = (solve(what.graph, None), what, fingerprint(module))

    def __deepcopy__(self, memo: Any) -> Cut:
        """Itself: configurations are copied now and then, and graphs had better not be."""
        return self

    def uuid(self) -> bytes:
        """One name for all cuts: compiled code is cached under the graphs that come out."""
        return b"pebbling: random numbers drawn one way"


class Seen(CustomGraphPass):
    """Takes a look at the graph before it is cut or compiled, and changes nothing."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut

    def __call__(self, graph: fx.Graph) -> None:
        """Keep a copy."""
        copy = fx.Graph()
        values: dict[fx.Node, fx.Node] = {}
        for node in graph.nodes:
            if node.op == "output":
                copy.output(fx.node.map_arg(node.args[0], values.__getitem__))
            else:
                values[node] = copy.node_copy(node, values.__getitem__)
        self.cut.last = copy

    def __deepcopy__(self, memo: Any) -> Seen:
        """As that of the cut."""
        return self

    def uuid(self) -> bytes:
        """As that of the cut."""
        return b"pebbling: random numbers drawn one way"


def _changed(context: Any) -> frozenset[int] | None:
    facts = getattr(context, "fw_metadata", None)
    if facts is None:
        return None
    changed = ("mutates_data", "mutates_metadata")
    return frozenset(
        place for place, facts in enumerate(facts.input_info) if any(getattr(facts, name, True) for name in changed)
    )
