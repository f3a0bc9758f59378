"""Hooks of a fitted model: on it, on what it was made from, on modules within; before the first call and after."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pebbling.errors import CaptureError
from pebbling.torch import fit

# torch looks at the gradient of what a hook around the module hands in, and warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")


def body() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def both(script: Callable[[Any, Any], list[Any]], model: nn.Module | None = None, **options: Any) -> bool:
    """Whether a script sees the same of a fitted model and of the original, and leaves the same gradients."""
    found = []
    for fitted in (False, True):
        mine: Any = copy.deepcopy(model or body())
        values = script(fit(mine, **options) if fitted else mine, mine)
        found.append([*values, *(parameter.grad for parameter in mine.parameters())])
    return len(found[0]) == len(found[1]) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*found)
    )


def step(run: Any) -> torch.Tensor:
    x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
    result: torch.Tensor = run(x)
    result.square().mean().backward()
    assert x.grad is not None
    return x.grad


def test_forward_hooks_of_inner_modules_may_come_and_go() -> None:
    def script(run: Any, model: Any) -> list[Any]:
        gradients = [step(run)]
        hook = model[0].register_forward_hook(lambda module, args, result: 2 * result)
        gradients.append(step(run))
        hook.remove()
        before = model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        gradients.append(step(run))
        before.remove()
        return [*gradients, step(run)]

    assert both(script)


def test_backward_hooks_of_the_model_itself() -> None:
    def script(run: Any, model: Any) -> list[Any]:
        seen: list[float] = []
        gradients = [step(run)]
        hooks = [
            model.register_full_backward_hook(lambda module, given, made: (2 * given[0],)),
            model.register_full_backward_pre_hook(lambda module, made: (3 * made[0],)),
            run.register_full_backward_hook(lambda module, given, made: seen.append(float(made[0].sum()))),
        ]
        gradients.append(step(run))
        for hook in hooks:
            hook.remove()
        return [*gradients, step(run), seen]

    assert both(script)


def test_backward_hooks_from_before_it_was_fitted() -> None:
    model = body()
    model.register_full_backward_hook(lambda module, given, made: (2 * given[0],))
    assert both(lambda run, model: [step(run)], model)


def test_backward_hooks_of_inner_modules_run_and_are_refused_by_name_where_they_would_be_captured() -> None:
    def script(run: Any, model: Any) -> list[Any]:
        first = step(run)
        model[2].register_full_backward_hook(lambda module, given, made: (2 * given[0],))
        return [first, step(run)]

    assert both(script)
    with pytest.raises(CaptureError, match=r"Linear '2' has backward hooks.*breaks="):
        both(script, backend="captured")
    assert both(script, backend="captured", breaks="keep")


def test_parameters_that_become_one_are_noticed() -> None:
    def script(run: Any, model: Any) -> list[Any]:
        first = step(run)
        model[2].weight = model[0].weight
        return [first, step(run)]

    assert both(script)


def test_copies_have_the_hooks_of_what_they_are_copies_of() -> None:
    fitted = fit(body())
    fitted.register_forward_hook(lambda module, args, result: 2 * result)
    fitted[0].register_forward_hook(lambda module, args, result: result + 1)
    fitted.register_forward_pre_hook(lambda module, args, keywords: ((args[0] * 3,), keywords), with_kwargs=True)
    other = copy.deepcopy(fitted)
    x = torch.randn(4, 8)
    assert torch.equal(other(x), fitted(x))
    other.register_forward_hook(lambda module, args, result: 5 * result)
    assert torch.equal(other(x), 5 * fitted(x))
    assert not torch.equal(fitted(x), fitted._runner.original(x))
