"""The budget bounds the measured peak, from the smallest to no limit; more budget never takes more of anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fit_cases import GPT, Residual, Views, captured
from torch import nn

from pebbling.errors import BudgetError
from pebbling.torch import plan
from pebbling.torch.models import Measured


def transformer() -> tuple[nn.Module, tuple[Any, ...]]:
    return GPT(layers=2, width=32, words=23), (torch.randint(23, (4, 12)),)


def convolutions() -> tuple[nn.Module, tuple[Any, ...]]:
    layers = [
        layer for i in range(3) for layer in (nn.Conv2d(3 if not i else 8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU())
    ]
    return Summed(nn.Sequential(*layers)), (torch.randn(4, 3, 12, 12),)


def perceptron() -> tuple[nn.Module, tuple[Any, ...]]:
    return Summed(nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)) for _ in range(5)])), (
        torch.randn(300, 16),
    )


def skips() -> tuple[nn.Module, tuple[Any, ...]]:
    return Residual(), (torch.randn(4, 1, 16, 16),)


def views() -> tuple[nn.Module, tuple[Any, ...]]:
    return Views(), (torch.randn(400, 8),)


class Summed(nn.Module):
    """A model and its loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


def measured(model: Any, example: tuple[Any, ...]) -> int:
    """Peak of one step, in bytes, above what is there before it."""
    model.zero_grad(set_to_none=True)
    with Measured() as memory:
        model(*example).backward()
    return memory.peak


@pytest.mark.parametrize("make", [transformer, convolutions, perceptron, skips, views], ids=lambda make: make.__name__)
def test_the_measured_peak_is_within_the_budget(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> None:
    torch.manual_seed(0)
    model, example = make()
    with pytest.raises(BudgetError) as refusal:
        plan(model, *example, memory=1, time_limit=1)
    least = int(refusal.value.minimum or 0)
    most = plan(model, *example).peak
    assert str(least) in str(refusal.value)
    overheads = []
    for budget in [*(least + (most - least) * tenth // 9 for tenth in range(10)), None]:
        fitted = captured(copy.deepcopy(model), memory=budget, time_limit=0.2)
        measured(fitted, example)
        peak = measured(fitted, example)
        assert peak <= (most if budget is None else budget)
        overheads.append(fitted.plan.overhead)
    assert overheads[-1] == overheads[-2] == 0
    assert overheads[0] > 0


def test_without_a_limit_a_fitted_model_takes_no_more_than_the_original() -> None:
    torch.manual_seed(0)
    model, example = transformer()
    fitted = captured(copy.deepcopy(model))
    measured(fitted, example)
    assert measured(fitted, example) <= measured(model, example)
