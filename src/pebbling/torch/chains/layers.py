"""A chain of modules as a program: step i is module i, and the state is whatever goes from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch

from ...loops.program import Leaves, Stepped, written_into_its_input
from ...tree import Structure, flatten, paths, unflatten
from ..loops.buffers import Values
from ..loops.checkpointed import CheckpointedLoop
from ..loops.taper import Taper
from ..tensors import differentiable
from .parts import ChainParts


class Layers:
    """Modules one after the other; what is between them may have another structure each time."""

    rich = False
    varies = False

    def __init__(self, modules: Sequence[torch.nn.Module], structure: Structure) -> None:
        self.modules = list(modules)
        self.length: int | None = len(modules)
        self.structures: dict[int, Structure] = {0: structure}

    def goes_on(self, state: Leaves, step: int) -> bool:
        return step < len(self.modules)

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        value = unflatten(self.structures[start], state)
        state.clear()
        for module in self.modules[start:stop]:
            value = module(value)
        leaves, self.structures[stop] = flatten(value)
        return leaves

    def full(self, state: Leaves, consts: Leaves, step: int) -> Stepped:
        return None, self.advance(list(state), consts, step, step + 1), (), ()

    def where(self) -> str:
        return f"a chain of {len(self.modules)} modules"

    def functions(self) -> list[Callable[..., Any]]:
        return list(self.modules)

    def names(self, count: int) -> list[str]:
        found = [names for one in self.structures.values() if len(names := paths(one, "output")) == count]
        return found[0] if found else [f"output[{index}]" for index in range(count)]

    def may_catch(self) -> bool:
        return False  # torch does not lock tensors

    def written_into(self, error: ValueError, frame: FrameType) -> Exception:
        return written_into_its_input(self, error)


class CheckpointedChain(CheckpointedLoop):
    """A loop through modules, in which every tensor that can be differentiated is."""

    apart = True
    """Whether no two modules have a buffer in common."""

    def held_buffers(self) -> Values:
        """Those of modules that are still to come, which is all that a snapshot needs, are as they were at first."""
        return self.start[1] if self.apart else super().held_buffers()

    def followed(self, state: Leaves, step: int) -> list[bool]:
        return [differentiable(leaf) for leaf in state]


def taper_of(program: Layers, survey: ChainParts, state: Leaves, casts: bool) -> Taper:
    """What makes tapes of a chain: a block uses the parameters of its own modules."""
    taper = Taper(program, len(state), [], survey.parameters, frozenset(), casts)
    taper.reach = survey.reach
    return taper
