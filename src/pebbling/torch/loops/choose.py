"""From what the caller said to the course of a loop."""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...budget import Budget, choose, slots_of
from ...store import Store
from ..tensors import nbytes, tensors_among
from .ambient import without_fast_paths
from .blocked import LEAF_ROOM, Blocked, by_slots
from .measured_budget import fewest, signature, within
from .problem import LoopProblem
from .slow_tier import beside
from .snapshots import TensorSlots

_TAPED = 3  # what a step is guessed to tape, in states
_REMEMBERED = 256


def settle(budget: Budget, problem: LoopProblem, store: Store | None) -> Blocked:
    """The course of a loop that is about to run."""
    steps = problem.program.length
    if problem.varies:
        problem.asked = budget.slots, budget.memory
    if budget.memory is not None:
        return within(budget.memory, problem) if store is None else beside(budget.memory, problem, store)
    found = choose(budget, steps, f"the loop over {problem.program.where()}")
    assert found is not None
    if budget.schedule is not None or store is not None or steps is None:
        return Blocked(found, steps)
    size = state_bytes(problem)
    if _TAPED * size <= LEAF_ROOM // 2 or steps <= 1:
        return by_slots(steps, budget.slots, _TAPED * size)
    slots = slots_of(budget, steps)
    # Slots that hold no state at the moment have room for tapes.
    tape = _taped(problem)
    return fewest(steps, Fraction(slots), Fraction(tape, size)) if tape <= slots * size else Blocked(found, steps)


def state_bytes(problem: LoopProblem) -> int:
    """The bytes of the state's tensors."""
    return nbytes(problem.state)


def _taped(problem: LoopProblem) -> int:
    """Bytes that autograd saves for one step, constants aside; found on a trial step, once for loops alike."""
    key = signature(problem)
    if key not in _known:
        while len(_known) >= _REMEMBERED:
            _known.popitem(last=False)
        _known[key] = _tape_once(problem)
    return _known[key]


_known: OrderedDict[Any, int] = OrderedDict()


def _tape_once(problem: LoopProblem) -> int:
    taper = problem.taper
    draws, buffers = problem.ambient.draws(), problem.buffers.read()
    constants = tensors_among((*taper.given, *taper.constants))
    apart = {tensor.untyped_storage()._cdata for tensor in constants}
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor.detach()

    looks, taper.looks = taper.looks, False
    try:
        with without_fast_paths(), saved_tensors_hooks(note, lambda tensor: tensor):
            block = taper.tape(TensorSlots("", problem.written).private(problem.state), 0, 1, problem.live)
    finally:
        taper.looks = looks
        problem.ambient.set(draws)
        problem.buffers.write(buffers)
    # The state after a step is saved as the next one's input, or as this one's result: it counts once.
    inputs = {root.untyped_storage()._cdata for root in block.roots if root is not None}
    outputs = {value.untyped_storage()._cdata for value in block.values if isinstance(value, torch.Tensor)}
    both = inputs & saved.keys() and outputs & saved.keys()
    return max(1, sum([size for key, size in saved.items() if key not in apart and not (both and key in outputs)]))
