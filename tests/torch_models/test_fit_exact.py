"""Fitted models give the loss, every gradient, every buffer and the random numbers of the original, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fit_cases import CASES, Case, captured

from pebbling.errors import BudgetError


def trained(model: Any, run: Any, loss: Callable[[Any], torch.Tensor], steps: int = 2) -> list[torch.Tensor]:
    """All that can be seen after some steps of training: losses, gradients, parameters, buffers, random numbers."""
    torch.manual_seed(5)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(run)
        value.backward()
        optimizer.step()
        seen.append(value.detach())
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [*seen, *gradients, *model.parameters(), *model.buffers(), torch.rand(4)]


def equal(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs))


def tight(model: Any, loss: Callable[[Any], torch.Tensor]) -> int:
    """A budget close to the smallest, which the refusal of an impossible one names."""
    with pytest.raises(BudgetError) as refusal:
        loss(captured(model, memory=1, time_limit=1))
    assert refusal.value.minimum is not None
    # A little more than that, so that the search has a choice.
    return int(1.05 * refusal.value.minimum)


# torch instantiates a custom function while it traces one, and warns of that.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_fitted_model_is_the_original_bit_for_bit(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, loss = case()
    expected = trained(theirs := copy.deepcopy(model), theirs, loss)
    memory = tight(copy.deepcopy(model), loss)
    mine = copy.deepcopy(model)
    fitted = captured(mine, memory=memory, time_limit=1)
    assert equal(trained(mine, fitted, loss), expected)
    assert fitted.plan.peak <= memory
