"""``why`` for JAX: the memory of a compiled program, its peak, and what is alive at it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from ...peaks import Life, Moment, Story, Why
from ...peaks.story import Phase
from .alive import Buffer, buffers
from .hlo import Instruction, parse

_CALLED = re.compile(r"^(?:jit|pjit|custom_jvp|custom_vjp|remat|remat2|checkpoint|rematted_computation)\b")
_TRANSFORMED = re.compile(r"^(?:jvp|transpose|vmap)\((.*)\)$")


def why(f: Callable[..., Any], *args: Any, **keywords: Any) -> Why:
    """Why the compiled program of ``f(*args, **keywords)`` takes the memory it takes.

    ``f`` is the whole step, such as ``jax.grad`` of a loss or a step of an optimizer, jitted or not. Nothing is run:
    it is compiled for the default device, and ``args`` may be ``jax.ShapeDtypeStruct``s. ``peak`` is XLA's own figure:
    arguments, results and temporaries, donated ones once. What is alive when is read off the compiled program, in the
    order in which it runs; its curve is shifted so that its peak is XLA's figure.

    >>> import jax.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))
    >>> found = why(jax.grad(loss), jnp.ones((64, 64)), jnp.ones((1024, 64)))
    >>> found.kinds["arguments"]
    278528
    """
    jitted: Any = f if hasattr(f, "lower") else jax.jit(f)
    compiled = jitted.lower(*args, **keywords).compile()
    memory = compiled.memory_analysis()
    found = buffers(parse(compiled.as_text()))
    story = _story(found.instructions, found.buffers, found.inside)
    arguments, results = memory.argument_size_in_bytes, memory.output_size_in_bytes - memory.alias_size_in_bytes
    peak = arguments + results + memory.temp_size_in_bytes
    shift = peak - story.peak
    moments = tuple(replace(moment, level=moment.level + shift, top=moment.top + shift) for moment in story.moments)
    return Why(replace(story, moments=moments), getattr(f, "__name__", type(f).__name__), arguments)


def _story(instructions: tuple[Instruction, ...], found: list[Buffer], inside: dict[int, list[Buffer]]) -> Story:
    """One moment an instruction that computes; buffers of nested computations live while their caller runs."""
    lives = [_life(buffer, instructions) for buffer in found]
    for at, nested in inside.items():
        lives += [replace(_life(each, ()), start=at, end=at + 1) for each in nested]
    lives = [life for life in lives if life.bytes]
    story = Story(tuple(Moment("") for _ in instructions), tuple(lives))
    levels = story.levels(lives)
    moments = []
    for at, each in enumerate(instructions):
        module, op = _path(each)
        before = int(levels[at - 1]) if at else 0
        moments.append(Moment(op, module, each.line, _phase(each), min(before, int(levels[at])), int(levels[at])))
    return Story(tuple(moments), story.lives)


def _life(buffer: Buffer, instructions: tuple[Instruction, ...]) -> Life:
    module, op = _path(buffer.maker)
    end = None if buffer.is_result or buffer.is_argument else buffer.last + (0 if buffer.gives_way else 1)
    if buffer.is_argument:
        return Life(buffer.bytes, 0, None, "argument", op=buffer.maker.op_name or buffer.maker.name)
    if buffer.is_result:
        # XLA sets results aside for the whole of the run.
        return Life(buffer.bytes, 0, None, "result", op, module, buffer.maker.line)
    read_late = buffer.last < len(instructions) and _phase(instructions[buffer.last]) == "backward"
    kept = read_late and _phase(buffer.maker) == "forward"
    return Life(buffer.bytes, buffer.start, end, "saved" if kept else "temporary", op, module, buffer.maker.line)


def _phase(instruction: Instruction) -> Phase:
    return "backward" if "transpose(" in instruction.op_name else "forward"


def _path(instruction: Instruction) -> tuple[str, str]:
    """The named scopes around an operation, without what JAX's own transformations add, and the operation."""
    *scopes, op = instruction.op_name.partition(";")[0].split("/")
    named = [_inside(scope) for scope in scopes]
    return ".".join(name for name in named if name and not _CALLED.match(name)), op or instruction.opcode


def _inside(scope: str) -> str:
    """``transpose(jvp(encoder))`` is what JAX makes of the scope ``encoder`` on the way back."""
    while match := _TRANSFORMED.match(scope):
        scope = match[1]
    return scope
