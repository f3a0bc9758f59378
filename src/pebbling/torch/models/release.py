"""Gradients that are applied and released as they come, so that they never all exist.

When the backward pass has finished a parameter's gradient, the optimizer's step runs for that parameter alone, and the
gradient is let go. That gives the bits of one step at the end if the optimizer treats each parameter for itself, which
those of ``torch.optim`` do, ``LBFGS`` apart.

The usual loop stays as it is: ``loss.backward(); optimizer.step(); optimizer.zero_grad()``. In between, ``p.grad`` is a
stand-in that refuses to be used: what clips, scales or logs gradients there would see nothing of them, without a word.
``optimizer.step()`` takes the stand-ins away.

What a parameter's update makes impossible is found in the step that is recorded: operations that read it are not run
again afterwards, and a node of the backward pass that reads it afterwards behind torch's back (as ``weight.data``,
which has no counter of versions in common with it) is refused.

>>> import torch
>>> model = torch.nn.Linear(2, 1)
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
>>> release = Release(optimizer)
>>> model(torch.ones(1, 2)).sum().backward()
>>> optimizer.step(), model.weight.grad is None
(None, True)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, distributed, nn

Watcher = Callable[[Tensor, list[Tensor], bool], None]
"""A method that is told of each parameter that was updated, the tensors of its state, and whether these are new."""


class Release:
    """Runs an optimizer's step for each parameter as its gradient comes, until it is closed."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        _check(optimizer)
        before = _current.get(optimizer)
        if before is not None:
            before.close()
        _current[optimizer] = self
        self._optimizer = weakref.ref(optimizer)
        self._watchers: list[weakref.WeakMethod[Watcher]] = []
        self._step = type(optimizer).step
        """The class's own: what a scheduler has put around it counts steps, and is for whole ones."""
        self._around = optimizer.__dict__.get("step")
        self._applied: list[weakref.ref[nn.Parameter]] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._come)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        ]
        rest, applied = self._around or MethodType(self._step, optimizer), self._applied

        def step(self: torch.optim.Optimizer, closure: Any = None) -> None:
            if closure is not None:
                raise ValueError("optimizer.step(closure) runs its own passes; with optimizer= there is none to run")
            _take_away(applied)
            # A scheduler's own counts; gradients of parameters that are trained only since are left to apply.
            rest()

        optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]

    def parameters(self) -> list[Tensor]:
        """What the optimizer updates."""
        optimizer = self._optimizer()
        return [] if optimizer is None else [each for group in optimizer.param_groups for each in group["params"]]

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of each update, for as long as it is there."""
        self._watchers = [each for each in self._watchers if each() is not None]
        self._watchers.append(weakref.WeakMethod(watcher))

    def close(self) -> None:
        """Give the optimizer back as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        _take_away(self._applied)
        optimizer = self._optimizer()
        if optimizer is not None:
            _current.pop(optimizer, None)
            optimizer.__dict__.pop("step", None)
            if self._around is not None:
                optimizer.step = self._around  # type: ignore[method-assign]

    def _come(self, parameter: torch.Tensor) -> None:
        optimizer = self._optimizer()
        if optimizer is None:
            return
        _check(optimizer)
        groups = optimizer.param_groups
        group = next(group for group in groups if any(each is parameter for each in group["params"]))
        fresh = not optimizer.state.get(parameter)
        optimizer.param_groups = [{**group, "params": [parameter]}]
        try:
            self._step(optimizer)
        finally:
            optimizer.param_groups = groups
        gradient = parameter.grad
        assert gradient is not None
        parameter.grad = AppliedGradient(gradient)
        self._applied.append(weakref.ref(parameter))  # type: ignore[arg-type]
        state = [each for each in optimizer.state.get(parameter, {}).values() if isinstance(each, Tensor)]
        for reference in self._watchers:
            watcher = reference()
            if watcher is not None:
                watcher(parameter, state, fresh)


_current: weakref.WeakKeyDictionary[torch.optim.Optimizer, Release] = weakref.WeakKeyDictionary()
"""Of each optimizer, so that nothing is applied twice."""


class AppliedGradient(torch.Tensor):
    """Stands where a gradient was that has been applied; any use of it is an error."""

    def __new__(cls, gradient: torch.Tensor) -> AppliedGradient:
        made: AppliedGradient = torch.Tensor._make_wrapper_subclass(
            cls, gradient.shape, dtype=gradient.dtype, device=gradient.device
        )
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"AppliedGradient({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func.overloadpacket is torch.ops.aten.detach:
            return args[0]
        raise RuntimeError(
            f"{func.overloadpacket} uses a gradient that fit(…, optimizer=…) has applied and released: clip, scale, "
            "log or accumulate gradients without optimizer=, and call optimizer.step() before the next backward pass"
        )


def _take_away(applied: list[weakref.ref[nn.Parameter]]) -> None:
    while applied:
        parameter = applied.pop()()
        if parameter is not None and isinstance(parameter.grad, AppliedGradient):
            parameter.grad = None


def _check(optimizer: torch.optim.Optimizer) -> None:
    """Refuse what would not be the same step."""
    kind = type(optimizer)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer= takes an optimizer of torch.optim, not {kind.__name__}")
    if not kind.__module__.startswith("torch.optim") or kind is torch.optim.LBFGS:
        raise ValueError(
            f"optimizer={kind.__name__}: only optimizers that treat each parameter for itself can apply gradients as "
            "they come, and those of torch.optim are known to, LBFGS apart"
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise ValueError(f"optimizer={kind.__name__} has step hooks, which would run once for each parameter")
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise ValueError("optimizer= applies gradients before ranks have added theirs: leave it out with several ranks")
