"""The live engine: a fitted program is the program, bit for bit, whatever it does and whatever the budget is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from live_cases import LIVE, Attending, Branching, Made, Times, equal, made, outcome, profiled, rows, share, twins
from torch import nn
from torch.nn import functional

from pebbling.errors import BudgetError, ReplayError
from pebbling.torch import fit


def fitted_in(model: nn.Module, batch: Any, of: float = 0.6) -> Any:
    """The model in a share of what it takes, or in the least that works."""
    memory = share(model, batch, of)
    tried = copy.deepcopy(model)
    try:
        fitted = fit(tried, memory=memory, time_limit=1)
        for _ in range(2):
            outcome(fitted, tried, batch)
    except BudgetError as error:
        memory = int(error.minimum or 0)
    return fit(model, memory=memory, time_limit=1)


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case.__name__)
def test_every_step_is_the_programs_own_and_something_is_made_again(case: Callable[[], Made]) -> None:
    model, theirs, batch = twins(case)
    fitted = fitted_in(model, batch)
    for seed in range(4):
        assert equal(outcome(fitted, model, batch, seed), outcome(theirs, theirs, batch, seed))
    assert fitted.plan.engine == "live"
    assert fitted.plan.replayed


def test_what_was_written_behind_torchs_back_is_kept_and_named() -> None:
    model, _, batch = twins(next(each for each in LIVE if each.__name__ == "foreign"))
    fitted = fitted_in(model, batch)
    outcome(fitted, model, batch)
    assert any("does not see" in name for name in fitted.plan.unproven)
    assert "does not see" in str(fitted.plan)


def test_another_branch_is_run_within_the_budget_recorded_and_then_planned() -> None:
    model, theirs, batch = twins(made(Branching, rows))
    fitted = fitted_in(model, batch)
    for shift in (0.0, 0.0, 5.0, 5.0, 5.0, -5.0, -5.0, -5.0, 5.0, 0.0):
        moved = (*batch, shift)
        assert equal(outcome(fitted, model, moved), outcome(theirs, theirs, moved))
    assert len(fitted.plans) == 3


def test_changing_lengths_are_planned_once_each() -> None:
    model, theirs, _ = twins(made(Attending))
    for memory in (None, 10**6):
        fitted = fit(model, memory=memory, time_limit=1)
        for length in (24, 30, 24, 30, 18, 24):
            batch = (torch.randint(50, (6, length)),)
            assert equal(outcome(fitted, model, batch), outcome(theirs, theirs, batch))


def test_autocast_and_its_cache_of_weights() -> None:
    model, theirs, batch = twins(made(Attending, lambda: torch.randint(50, (6, 24))))

    def cast(run: Any) -> Any:
        def call(*given: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return run(*given)

        return call

    fitted = fitted_in(model, batch, 0.5)
    for seed in range(3):
        assert equal(outcome(cast(fitted), model, batch, seed), outcome(cast(theirs), theirs, batch, seed))


def test_gradients_accumulate_over_forwards_that_come_before_the_backwards() -> None:
    model, theirs, batch = twins(made(Branching, rows))
    fitted = fitted_in(model, batch, 0.7)
    for _ in range(3):
        for run, each in ((fitted, model), (theirs, theirs)):
            each.zero_grad()
            losses = [run(batch[0] + shift) for shift in (0.0, 0.1)]
            (losses[0] + losses[1]).backward()
            run(*batch).backward()
        assert equal((p.grad for p in model.parameters()), (p.grad for p in theirs.parameters()))


def test_a_graph_that_is_retained_goes_backward_twice() -> None:
    model, theirs, batch = twins(made(Branching, rows))
    fitted = fitted_in(model, batch)
    for _ in range(3):
        for run, each in ((fitted, model), (theirs, theirs)):
            each.zero_grad()
            loss = run(*batch)
            loss.backward(retain_graph=True)
            loss.backward()
        assert equal((p.grad for p in model.parameters()), (p.grad for p in theirs.parameters()))


class Smooth(nn.Module):
    """With second derivatives everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) * torch.sigmoid(x)
        return x.square().mean()


def test_gradients_of_gradients() -> None:
    model, theirs, batch = twins(made(Smooth, lambda: rows().requires_grad_()))
    fitted = fitted_in(model, batch)
    outcome(fitted, model, batch)
    for _ in range(2):
        found = []
        for run in (fitted, theirs):
            (first,) = torch.autograd.grad(run(*batch), batch[0], create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), list(run.parameters())))
        assert equal(*found)


def test_a_compiled_part_inside_runs_as_it_is() -> None:
    class Mixed(Smooth):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.compile(lambda x: (x.sin() * x.cos()).exp(), backend="aot_eager")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(self.inner(x))

    torch.manual_seed(0)
    model, batch = Mixed(), (rows(),)
    fitted = fitted_in(model, batch)
    for _ in range(3):
        assert equal(outcome(fitted, model, batch), outcome(model, model, batch))
    assert fitted.plan.replayed


def test_parameters_that_are_given_other_numbers_before_the_backward_pass() -> None:
    model, theirs, batch = twins(made(Smooth, rows))
    fitted = fitted_in(model, batch)
    for _ in range(3):
        for run, each in ((fitted, model), (theirs, theirs)):
            each.zero_grad()
            loss = run(*batch)
            with torch.no_grad():
                for parameter in each.parameters():
                    parameter.data = parameter.data * 0.5
            loss.backward()
        assert equal((p.grad for p in model.parameters()), (p.grad for p in theirs.parameters()))


class Overwritten(nn.Module):
    """Writes into what autograd has saved."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.write = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(self.inner(x))
        z = y.exp().cos().exp()
        if self.write:
            y.mul_(2)
        return z.sum()


def test_what_torch_refuses_is_refused_in_its_words() -> None:
    for write in (True, False):
        model = Overwritten()
        model.write = False
        fitted = fitted_in(model, (rows(),))
        x = rows()
        outcome(fitted, model, (x,))
        outcome(fitted, model, (x,))
        model.write = write
        loss = fitted(x)
        if write:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()


def test_a_parameter_that_is_written_before_the_backward_pass_is_refused_where_a_replay_needs_it() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                x = torch.tanh(x + self.scale)
            return x.sum()

    model = Scaled()
    fitted = fitted_in(model, (rows(),), 0.5)
    x = rows()
    outcome(fitted, model, (x,))
    outcome(fitted, model, (x,))
    loss = fitted(x)
    with torch.no_grad():
        model.scale.add_(1)
    with pytest.raises(ReplayError, match=r"aten\.(add|tanh) .*modified in place after the forward pass"):
        loss.backward()


def test_a_loss_outside_and_results_that_are_kept() -> None:
    model, theirs, batch = twins(made(Attending, lambda: torch.randint(50, (6, 24))))
    fitted = fitted_in(model, batch)
    for seed in range(3):
        for run, each in ((fitted, model), (theirs, theirs)):
            each.zero_grad()
            torch.manual_seed(seed)
            scores = run(*batch).scores
            functional.mse_loss(scores.softmax(-1), torch.zeros_like(scores)).backward()
        assert equal((p.grad for p in model.parameters()), (p.grad for p in theirs.parameters()))


def test_functions_with_what_they_close_over() -> None:
    weight = torch.randn(32, 32, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = Times.apply(torch.tanh(x @ weight))
        return x.square().mean()

    x = rows()
    program(x).backward()
    expected, weight.grad = weight.grad, None
    whole = profiled(lambda: program(x).backward())
    weight.grad = None
    fitted = fit(program, memory=0.8 * whole, time_limit=1)
    for _ in range(3):
        fitted(x).backward()
        assert weight.grad is not None
        assert expected is not None
        assert torch.equal(weight.grad, expected)
        weight.grad = None
    assert fitted.plan.replayed
