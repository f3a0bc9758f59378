"""What each module of a chain takes: time forwards and backwards, bytes of its output and of its tape.

Modules are run one after the other on their real inputs, and each is taped, reversed and forgotten before the
next, so measuring needs little memory. Times are the best of a few, after a first run that does not count.
The tape is what autograd saves: tensors inside the module, and perhaps its input and its output, which the
neighbours may save too and which count once where both are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...loops.program import Leaves
from ..loops.ambient import Ambient, without_fast_paths
from ..loops.buffers import Buffers
from ..loops.taper import Taper
from ..loops.tapes import Sums
from ..tensors import differentiable, nbytes
from ..tracked import Tracked
from .layers import Layers

_REPEATS = 3


@dataclass(frozen=True)
class Module:
    """One module: seconds and bytes."""

    forward: float
    backward: float
    output: int
    cotangents: int
    """Of the output."""
    inside: int
    """Bytes of the tape that are neither input nor output."""
    saves_input: bool
    saves_output: bool
    gradients: int
    extra_forward: int
    """What a run without a tape takes at most on top of its input and output."""
    extra_turn: int
    """What a turn takes at most on top of its input, its cotangents and what its gradients end up taking."""
    extra_back: int
    """What going back over a kept tape takes on top of that tape and its cotangents."""


@dataclass(frozen=True)
class Costs:
    """A chain on one kind of input."""

    input: int
    modules: tuple[Module, ...]
    apart: bool = True
    """Whether every module changes no buffers but its own."""


def measure(program: Layers, taper: Taper, state: Leaves, ambient: Ambient, buffers: Buffers) -> Costs:
    """Run a chain module by module; generators and buffers are put back, and buffers told apart."""
    draws, before = ambient.draws(), buffers.read()
    looks, taper.looks = taper.looks, False
    modules = []
    apart = True
    first = _bytes(state)
    try:
        with torch.no_grad(), without_fast_paths():
            now = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in state]
            for step in range(len(program.modules)):
                marks, _ = buffers.changed_since()
                module, now = _measure_one(program, taper, now, step)
                modules.append(module)
                own = {id(part) for part in program.modules[step].modules()}
                apart = apart and all(id(part) in own for part in buffers.changed_since(marks)[1])
        buffers.settle(before)
        before = tuple([value for value, one in zip(before, buffers.changed) if one])
    finally:
        taper.looks = looks
        ambient.set(draws)
        buffers.write(before)
    return Costs(first, tuple(_alike(modules, program)), apart)


def _measure_one(program: Layers, taper: Taper, state: Leaves, step: int) -> tuple[Module, Leaves]:
    forward = min(_timed(lambda: program.advance(list(state), [], step, step + 1)) for _ in range(_REPEATS))
    live = [differentiable(leaf) for leaf in state]

    def turn() -> None:
        block = taper.tape(list(state), step, step + 1, live)
        seeds = _seeds(block)
        block.values = []
        taper.pull(block, seeds, Sums([None] * len(taper.constants)), [True] * len(taper.constants))

    both = min(_timed(turn) for _ in range(_REPEATS - 1))
    inside, saves_input, saves_output = _saved(taper, state, step, live)
    with Tracked() as memory:
        after = program.advance(list(state), [], step, step + 1)
        output = _bytes(after)
        extra_forward = memory.peak - memory.held
        memory.restart()
        held = memory.held
        block = taper.tape(list(state), step, step + 1, live)
        seeds = _seeds(block)
        cotangents = _bytes(seeds)
        block.values = []
        sums = Sums([None] * len(taper.constants))
        taped = memory.held
        peak_taping = memory.peak
        memory.restart()
        found = taper.pull(block, seeds, sums, [True] * len(taper.constants))
        gradients = _bytes(sums.constants)
        extra_turn = max(memory.peak, peak_taping) - held - cotangents - gradients
        extra_back = memory.peak - taped - gradients
        del block, seeds, sums, found
    module = Module(
        forward,
        max(both - forward, 0.0),
        output,
        cotangents,
        inside,
        saves_input,
        saves_output,
        gradients,
        max(extra_forward, 0),
        max(extra_turn, 0),
        max(extra_back, 0),
    )
    return module, taper.cut(after)


def _saved(taper: Taper, state: Leaves, step: int, live: list[bool]) -> tuple[int, bool, bool]:
    """Bytes that a tape holds inside, and whether it holds the input and the output."""
    saved: dict[int, tuple[int, Any]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes(), storage
        return tensor.detach()  # the tensor itself may lead back to the tape, and neither would be let go

    with saved_tensors_hooks(note, lambda tensor: tensor):
        block = taper.tape(list(state), step, step + 1, live)
    inputs, outputs = _storages(state), _storages(block.values)
    constants = _storages(taper.constants)
    inside = sum([size for key, (size, _) in saved.items() if key not in inputs | outputs | constants])
    return inside, bool(inputs & saved.keys()), bool((outputs - inputs) & saved.keys())


def _storages(leaves: Leaves) -> set[int]:
    return {leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)}


def _seeds(block: Any) -> Leaves:
    return [None if end is None else torch.zeros_like(value) for value, end in zip(block.values, block.ends)]


def _timed(function: Any) -> float:
    # Beside other programs, the time of this one alone is what compares modules with each other.
    clock = perf_counter if _on_gpu() else process_time
    _wait()
    begun = clock()
    result = function()
    _wait()
    seconds = clock() - begun
    del result
    return seconds


def _alike(modules: list[Module], program: Layers) -> list[Module]:
    """The same times for modules that look the same and have outputs alike: the least that was measured."""
    groups: dict[Any, list[Module]] = {}
    names = [repr(module) for module in program.modules]
    sizes = [0, *[module.output for module in modules]]
    for place, (name, module) in enumerate(zip(names, modules)):
        groups.setdefault((name, sizes[place], module.output), []).append(module)
    found = []
    for place, (name, module) in enumerate(zip(names, modules)):
        group = groups[name, sizes[place], module.output]
        forward, backward = min(one.forward for one in group), min(one.backward for one in group)
        found.append(replace(module, forward=forward, backward=backward))
    return found


def _on_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def _wait() -> None:
    if _on_gpu():
        torch.cuda.synchronize()


def _bytes(leaves: Any) -> int:
    return nbytes(leaves)
