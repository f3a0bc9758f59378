"""Values that go to memory of the host and back, where that is faster than making them again, or the only way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from live_cases import LIVE, WIDTH, Made, Times, equal, made, outcome, rows, taken, twins
from torch import nn

from pebbling.errors import BudgetError
from pebbling.torch import fit
from pebbling.torch.models.live import planning

UNSEEN = 2**16


def least(model: nn.Module, batch: Any, **options: Any) -> int:
    tried = copy.deepcopy(model)
    with pytest.raises(BudgetError) as refused:
        outcome(fit(tried, memory=1, time_limit=1, **options), tried, batch)
    return int(refused.value.minimum or 0)


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case.__name__)
def test_every_step_is_the_programs_own_where_all_goes_to_the_host(
    case: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "rate", lambda device, most: 1e15)
    model, theirs, batch = twins(case)
    memory = least(model, batch, host="1GB")
    fitted = fit(model, memory=memory, host="1GB", time_limit=1, verify="all")
    for seed in range(3):
        assert equal(outcome(fitted, model, batch, seed), outcome(theirs, theirs, batch, seed))
    assert taken(fitted, model, batch) <= memory + UNSEEN
    assert fitted.plan.graph_plan.offloaded


def test_a_budget_that_is_refused_without_the_host_works_with_it() -> None:
    model, theirs, batch = twins(next(each for each in LIVE if each.__name__ == "foreign"))
    alone, memory = least(model, batch), least(model, batch, host="1GB")
    assert memory < 0.8 * alone
    tried = copy.deepcopy(model)
    without = fit(tried, memory=memory, time_limit=1)
    with pytest.raises(BudgetError):  # noqa: PT012, the first step records, the second plans
        outcome(without, tried, batch)
        outcome(without, tried, batch)
    fitted = fit(model, memory=memory, host="1GB", time_limit=1)
    for seed in range(3):
        assert equal(outcome(fitted, model, batch, seed), outcome(theirs, theirs, batch, seed))
    assert "host" in str(fitted.plan)


def test_no_more_of_the_host_is_taken_than_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "rate", lambda device, most: 1e15)
    model, _, batch = twins(next(each for each in LIVE if each.__name__ == "attending"))
    whole = taken(model, model, batch)
    for host in (150_000, 400_000):
        fitted = fit(model, memory=int(0.6 * whole), host=host, time_limit=1)
        for _ in range(2):
            outcome(fitted, model, batch)
        table = next(iter(fitted._runner._kinds.values())).tables[0]
        assert 0 < max(start + bytes for start, bytes in table.moved.values()) <= host


def test_what_is_on_the_host_can_be_asked_for_again_and_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "rate", lambda device, most: 1e15)
    model, theirs, batch = twins(made(Overlapping, rows))
    fitted = fit(model, memory=least(model, batch, host="1GB"), host="1GB", time_limit=1, verify="all")
    for _ in range(2):
        outcome(fitted, model, batch)
    ours, other = fitted(*batch), theirs(*batch)
    for loss, owner in ((ours, model), (other, theirs)):
        owner.zero_grad()
        loss.backward(retain_graph=True)
        loss.backward()
    assert equal([p.grad for p in model.parameters()], [p.grad for p in theirs.parameters()])
    # Two steps at once take two slabs.
    losses = [fitted(*batch), fitted(*batch)]
    expected = [theirs(*batch), theirs(*batch)]
    for owner, two in ((model, losses), (theirs, expected)):
        owner.zero_grad()
        for loss in two:
            loss.backward()
    assert equal([p.grad for p in model.parameters()], [p.grad for p in theirs.parameters()])


class Overlapping(nn.Module):
    """Saves what it then overwrites elsewhere, and passes through a custom function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            x = Times.apply(x)
            x = torch.nn.functional.gelu(x).mul_(0.3)
        return x.square().mean()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"host": "1GB"}, "without memory"), ({"host": "1GB", "memory": "1GB", "backend": "captured"}, "'eager' only")],
)
def test_a_host_that_means_nothing_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(nn.Linear(2, 2), **wrong)
