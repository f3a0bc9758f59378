"""What becomes of each loop of a function, as a table to act on."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import tree
from ..chain import Online
from ..engine.numpy import transform
from ..engine.numpy.step import differentiable
from ..engine.tree import flatten
from ..errors import SourceError
from ..loops.frameworks import compiler_of
from ..loops.plan import Settle, measure
from ..loops.runtime import Observer, Options
from ..units import format_bytes
from .callees import Template
from .checkpoint import checkpoint
from .facts import Facts
from .parse import RUNTIME
from .runtime import Runtime


@dataclass
class Loop:
    """What is known of one loop; the second half only if arguments were given and the loop was reached."""

    line: int = 0
    text: str = ""
    depth: int = 0
    state: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    checkpointed: bool = False
    why_not: str = ""
    steps: int | None = None
    state_bytes: int | None = None
    slots: int | None = None
    forwards: int | None = None
    peak: int | None = None
    function: str = ""
    """The function that has it, if that is not the one that is explained."""

    def __str__(self) -> str:
        place = f"line {self.line} of {self.function}" if self.function else f"line {self.line}"
        lines = [f"{place}: {self.text}"]
        parts = [("state", self.state), ("constants", self.constants), ("outputs", self.outputs)]
        lines += [f"  {name:<12} {', '.join(names)}" for name, names in parts if names]
        lines.append(f"  {'checkpointed':<12} {'yes' if self.checkpointed else f'no: {self.why_not}'}")
        if self.peak is not None:
            number = "as many as it takes," if self.steps is None else f"{self.steps:,} of"
            lines.append(f"  {'steps':<12} {number} {format_bytes(self.state_bytes or 0)} each")
            if self.forwards is None:
                lines.append(f"  {'slots':<12} {self.slots:,}")
            else:
                lines.append(f"  {'forwards':<12} {self.forwards:,} with {self.slots:,} slots")
            lines.append(f"  {'peak':<12} {format_bytes(self.peak)} predicted")
        return textwrap.indent("\n".join(lines), "    " * self.depth)


@dataclass
class Explanation:
    """The loops of a function; its text is the table."""

    name: str
    loops: list[Loop] = field(default_factory=list)
    error: SourceError | None = None

    def __str__(self) -> str:
        end = [] if self.error is None else [f"refused: {self.error}"]
        return "\n".join([self.name, *map(str, self.loops), *end])

    __repr__ = __str__


def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """What becomes of each loop of ``f``: its state, constants and outputs, and whether and how it is checkpointed.

    ``f`` is a function, decorated with ``checkpoint`` or not. With arguments, it is run as if it were
    differentiated with respect to all arrays and numbers among them, and the lengths, the forwards (all
    evaluations of a step) and the predicted peak of each loop are added. Prints as a table.

    >>> import numpy as np
    >>> from pebbling.source.demo import decay
    >>> print(explain(decay, np.ones(1000)))  # doctest: +ELLIPSIS
    decay
    line 11: for _ in range(100)
      state        u
      checkpointed yes
      steps        100 of ... each
      forwards     285 with 13 slots
      peak         ... predicted
    """
    try:
        function = f if hasattr(f, RUNTIME) else checkpoint(f)
    except SourceError as error:
        return Explanation(getattr(f, "__qualname__", repr(f)), error=error)
    runtime: Runtime = getattr(function, RUNTIME)
    found = Explanation(function.__qualname__, [_known(facts, bool(args)) for facts in runtime.facts])
    if args:
        _observe(found, runtime, lambda: _run(function, args, kwargs))
    return found


def _known(facts: Facts, run: bool, function: str = "") -> Loop:
    why = "not reached with these arguments" if run else ""
    outputs = (*facts.outs, *facts.emits)
    depth = facts.depth + bool(function)
    return Loop(facts.line, facts.text, depth, facts.state, facts.consts, outputs, not run, why, function=function)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    compiler = compiler_of(flatten((args, list(kwargs.values())))[0])
    if compiler is not None:
        compiler.explore(function, args, kwargs)
        return
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(leaf, torch.Tensor) for leaf in flatten((args, list(kwargs.values())))[0]):
        leaves, structure = tree.flatten((list(args), kwargs))
        with torch.enable_grad():
            for place, leaf in enumerate(leaves):
                if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
                    # A tensor that is no leaf: a function may write into it.
                    leaves[place] = leaf.detach().requires_grad_().clone()
            given, named = tree.unflatten(structure, leaves)
            function(*given, **named)
        return
    chosen = [place for place, arg in enumerate(args) if _is_differentiable(arg)]

    def of_chosen(*new: Any) -> Any:
        given = list(args)
        for place, arg in zip(chosen, new):
            given[place] = arg
        result = function(*given, **kwargs)
        return [leaf for leaf in flatten(result)[0] if differentiable(leaf)]

    transform.vjp(of_chosen, *[args[place] for place in chosen])


def _is_differentiable(arg: Any) -> bool:
    leaves = flatten(arg)[0]
    return bool(leaves) and all(map(differentiable, leaves))


def _observe(found: Explanation, runtime: Runtime, run: Callable[[], None]) -> None:
    """Run with eyes on every loop."""
    watched: list[tuple[Runtime, list[Options]]] = []

    def watch(runtime: Runtime, loops: list[Loop]) -> None:
        watched.append((runtime, runtime.options))
        runtime.options = [_Watched(**vars_of(options), loop=loop) for options, loop in zip(runtime.options, loops)]
        runtime.listeners.append(lambda facts, why: _note_plain(loops[facts.number], why))

    def watch_called(template: Template) -> None:
        loops = [_known(facts, True, template.name) for facts in template.runtime.facts]
        found.loops += loops
        watch(template.runtime, loops)

    watch(runtime, found.loops)
    callees = runtime.callees
    if callees is not None:
        callees.listeners.append(watch_called)
        for template in filter(None, callees.templates.values()):
            watch_called(template)
    try:
        run()
    except SourceError as error:
        found.error = error
    finally:
        for one, before in watched:
            one.options = before
            one.listeners.pop()
        if callees is not None:
            callees.listeners.pop()


def _note_plain(loop: Loop, why: str) -> None:
    if not loop.checkpointed:
        loop.why_not = why


def vars_of(options: Options) -> dict[str, Any]:
    """The arguments of options."""
    return {name: getattr(options, name) for name in ("slots", "memory", "schedule", "verify")}


@dataclass(frozen=True)
class _Watched(Options):
    """Options that write down which schedule a loop follows."""

    loop: Loop = field(default_factory=Loop)

    @property
    def settle(self) -> Settle:
        return _Noting(self, self.loop)

    @property
    def observer(self) -> Observer:
        return self._note

    def _note(self, steps: int | None, state: int, slots: int, forwards: int | None, peak: int) -> None:
        """What a framework says that compiles the loop itself."""
        loop = self.loop
        loop.checkpointed, loop.why_not = True, ""
        if loop.peak is None or peak >= loop.peak:
            loop.steps, loop.state_bytes, loop.slots, loop.forwards, loop.peak = steps, state, slots, forwards, peak


@dataclass(frozen=True)
class _Noting(Settle):
    loop: Loop

    def __call__(self, node: Any, state: list[Any], consts: list[Any], live: list[bool], wanted: list[bool]) -> Any:
        schedule = Settle(self.budget)(node, state, consts, live, wanted)
        loop, program = self.loop, node.program
        loop.checkpointed, loop.why_not = True, ""
        loop.state, loop.constants = tuple(program.entry.names), tuple(program.entry.fixed)
        if program.length == 0 or (program.length is None and not program.goes_on(state, 0)):
            loop.steps = 0
            return schedule
        measured = measure(node.framework, program, state, consts, [*live, *wanted], node.written, node.level)
        plan = schedule
        if isinstance(schedule, Online):
            plan = schedule.ended(program.length or _count(program, state, consts))
        cost = plan.cost
        kept = cost.tapes * measured.tape + (cost.peak if not cost.tapes else 0) * measured.state
        if loop.steps is None or plan.steps >= loop.steps:
            loop.steps, loop.state_bytes, loop.slots = plan.steps, measured.state, int(cost.peak)
            loop.forwards, loop.peak = cost.forwards, int(measured.working + kept)
        return schedule


def _count(program: Any, state: list[Any], consts: list[Any]) -> int:
    """The steps of a loop of unknown length."""
    steps, flag, now = 0, None, list(state)
    while not flag and program.goes_on(now, steps):
        flag, now, _, _ = program.full(now, consts, steps)
        steps += 1
    return steps
