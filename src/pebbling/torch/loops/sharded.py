"""Modules of a loop whose parameters are sharded (``torch.distributed.fsdp.fully_shard``).

Their parameters are gathered once for the whole loop and once for the whole way back, and not for every step
and every replay; in between they are sharded again. Their gradients arrive once, summed over all steps, and
are then reduced over the processes as after any backward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Sharded:
    """The sharded modules among all those that a loop may call, the innermost included."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        fsdp: Any = sys.modules.get("torch.distributed.fsdp")
        kind = getattr(fsdp, "FSDPModule", ())
        self._modules: list[Any] = [part for part in modules if isinstance(part, kind)] if kind else []

    def __bool__(self) -> bool:
        return bool(self._modules)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Whole parameters, and modules that leave them so when they are called."""
        if not self._modules:
            yield
            return
        from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

        states = [module._get_fsdp_state() for module in self._modules]
        for state in states:
            if state._is_root is None:
                state._lazy_init()
        whole = [all(group.is_unsharded for group in _groups(state)) for state in states]
        for module in self._modules:
            module.unshard()
        before = [state._training_state for state in states]
        for state in states:
            # As while activations are computed again: hooks of a forward pass do nothing.
            state._training_state = TrainingState.PRE_BACKWARD
        try:
            yield
        finally:
            for module, state, old, was_whole in zip(self._modules, states, before, whole):
                state._training_state = old
                if not was_whole:
                    module.reshard()

    def deliver(self) -> None:
        """Have gradients reduced when the backward pass that is going on has ended."""
        for module in self._modules:
            module._get_fsdp_state()._register_root_post_backward_final_callback()


def _groups(state: Any) -> list[Any]:
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []
