"""A chain of modules whose gradient fits a budget: one line, same parameters, same ``state_dict``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ...budget import Budget, told
from ...chain import Online, Schedule, StoreAll, Uneven
from ...chain.binomial import default_slots
from ...errors import PebblingError
from ...loops.node import Outcome
from ...loops.program import Leaves
from ...tree import flatten, unflatten
from ...units import parse_bytes
from ..loops.ambient import Ambient, without_fast_paths
from ..loops.blocked import Blocked
from ..loops.buffers import Buffers
from ..loops.functional import applies
from ..loops.measured_budget import UNUSED
from ..loops.node import LoopNode
from ..loops.sharded import Sharded
from ..loops.taper import Taper
from ..tensors import differentiable, tensors_among
from .costs import Costs, measure
from .fitting import Fit, expect, fit
from .layers import CheckpointedChain, Layers, taper_of
from .parts import ChainParts

BOOKKEEPING = 32 * 1024


class Chain(nn.Module):
    """Modules one after the other, as in ``nn.Sequential``; made by ``chain``."""

    def __init__(self, modules: Iterable[nn.Module], budget: Budget, verify: str | bool) -> None:
        super().__init__()
        if isinstance(modules, nn.Sequential):
            named = list(modules._modules.items())
        else:
            named = [(str(index), module) for index, module in enumerate(modules)]
        for name, module in named:
            if not isinstance(module, nn.Module):
                raise TypeError(f"a chain consists of modules, and number {name} is a {type(module).__name__}")
            self.add_module(name, module)
        self._budget, self._verify = budget, verify
        self._plans: dict[Any, tuple[Fit, list[bool], Costs]] = {}
        self._costs: Costs | None = None
        self._aside = BOOKKEEPING
        self.plan: Fit | None = None
        """The schedule of the last call, its predicted peak in bytes, its predicted time in seconds and the least."""

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> nn.Module:
        return self._links()[index]

    def expect(self, schedule: Schedule) -> Fit:
        """What another schedule would take on the input of the last call, by what was measured then."""
        if self._costs is None:
            raise PebblingError("nothing is known of this chain yet: call it once with an input that is differentiated")
        return expect(self._costs, schedule, self._aside)

    def _links(self) -> list[nn.Module]:
        # Not children(), which gives a module that occurs twice only once.
        return [module for module in self._modules.values() if module is not None]

    def forward(self, value: Any) -> Any:
        leaves, structure = flatten(value)
        links = self._links()
        if not torch.is_grad_enabled() or applies(leaves):
            return _straight(links, value)
        program, survey = Layers(links, structure), ChainParts(links)
        tensors = tensors_among(leaves)
        if not survey.parameters and not any(tensor.requires_grad for tensor in tensors):
            return _straight(links, value)
        sharded = Sharded(survey.parts)
        with sharded.gathered():
            if sharded:
                survey = ChainParts(links)
            ambient = Ambient([*tensors, *survey.parameters])
            taper = taper_of(program, survey, leaves, ambient.casts)
            taper.looks = ambient.casts
            plan, buffers = self._planned(program, survey, leaves, ambient, taper)
            self.plan = plan
            if isinstance(plan.schedule, StoreAll) and not sharded:
                return _straight(links, value)
            loop = CheckpointedChain(
                program,
                Blocked(plan.schedule, len(links)),
                leaves,
                taper,
                [differentiable(leaf) for leaf in leaves],
                ambient,
                buffers,
                [*tensors, *survey.parameters],
                ambient.casts or survey.compiled,
                self._verify,
            )
            assert self._costs is not None
            loop.apart = survey.apart and self._costs.apart
            loop.sweep()
            outcome = Outcome(loop.state, [], [], None, len(links))
            loop.let_go()
            state = LoopNode(loop, _Given(leaves, taper.constants), sharded).call(outcome).state
            return unflatten(program.structures[len(links)], state)

    def _planned(
        self, program: Layers, survey: ChainParts, leaves: Leaves, ambient: Ambient, taper: Taper
    ) -> tuple[Fit, Buffers]:
        """The plan for inputs like these, made when they are first met, and the buffers that modules change."""
        key = _signature(leaves), tuple(ambient.autocast), tuple(survey.training)
        buffers = Buffers(survey.buffers)
        if key in self._plans:
            plan, changed, self._costs = self._plans[key]
            if len(changed) == len(survey.buffers):
                buffers.only([slot for slot, one in zip(survey.buffers, changed) if one])
                return plan, buffers
        self._costs = measure(program, taper, leaves, ambient, buffers)
        self._aside = BOOKKEEPING + (UNUSED if ambient.devices else 0)
        plan = self._settle(self._costs)
        self._plans[key] = plan, list(buffers.changed), self._costs
        return plan, buffers

    def _settle(self, costs: Costs) -> Fit:
        budget, steps = self._budget, len(costs.modules)
        if budget.memory is not None:
            return fit(costs, parse_bytes(budget.memory), self._aside)
        schedule: Any = budget.schedule
        if schedule is None:
            slots = default_slots(steps) if budget.slots is None else budget.slots
            schedule = (
                Uneven([module.forward for module in costs.modules], slots=slots) if steps > 1 else StoreAll(steps)
            )
        return expect(costs, schedule, self._aside)


class _Given:
    def __init__(self, state: Leaves, constants: list[torch.Tensor]) -> None:
        self.state, self.constants = state, constants


def chain(
    modules: nn.Sequential | Iterable[nn.Module],
    *,
    memory: float | str | None = None,
    slots: int | None = None,
    schedule: Schedule | Online | None = None,
    verify: str | bool = "last",
    budget: Budget | None = None,
) -> Chain:
    """Modules one after the other, whose forward and backward pass take at most ``memory`` above what was in use.

    At the first call with inputs of some shape, each module's time, output and tape are measured, and the fastest
    plan within the budget (``pebbling.Uneven``) is kept. The modules, their parameters and the names in
    ``state_dict()`` stay as they are. At most one of ``memory``, ``slots`` and ``schedule`` (of as many steps as there
    are modules); with none, the fewest slots for which no module runs more than three times.
    ``budget`` is a ``pb.Budget`` in place of these and ``verify``.

    >>> net = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(6)])
    >>> small = chain(net, slots=2)
    >>> small(torch.ones(4, 8)).sum().backward()
    >>> list(small.state_dict()) == list(net.state_dict()), net[0][0].weight.grad is not None
    (True, True)
    """
    said = told(budget, "pebbling.torch.chain", slots=slots, memory=memory, schedule=schedule, verify=verify)
    schedule = said.schedule
    if isinstance(schedule, Online):
        raise ValueError("the length of a chain is known: give a schedule of that many steps, not an Online one")
    made = Chain(modules, said, said.verify)
    if schedule is not None and schedule.steps != len(made):
        raise ValueError(f"the schedule is for {schedule.steps} steps, the chain has {len(made)} modules")
    return made


def _straight(modules: list[nn.Module], value: Any) -> Any:
    with without_fast_paths():
        for module in modules:
            value = module(value)
        return value


def _signature(leaves: Leaves) -> Any:
    return tuple(
        [
            (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else type(leaf)
            for leaf in leaves
        ]
    )
