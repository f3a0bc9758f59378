"""What is done to a captured graph: writing over dead operands, eager mode's kernels, a second plan."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from fit_cases import GPT, batch_norm
from test_fit_budget import measured
from torch import nn

from pebbling.graph import smallest
from pebbling.torch import fit, plan
from pebbling.torch.models import kernels
from pebbling.torch.models.captured import Captured
from pebbling.torch.models.planner import Planner


def test_operations_write_over_operands_that_nobody_reads_again() -> None:
    torch.manual_seed(0)
    model, tokens = GPT(layers=1, width=16, words=500, tied=False), torch.randint(500, (4, 16))
    fitted = fit(copy.deepcopy(model))
    measured(fitted, (tokens,))
    joined = [node.op for node in fitted.plan.graph.nodes if " + " in node.op]
    assert "aten.nll_loss_backward.default + aten._log_softmax_backward_data.default" in joined
    logits = 4 * 16 * 500 * 4
    assert measured(fitted, (tokens,)) <= measured(model, (tokens,)) - 0.9 * logits


def test_an_operand_that_is_read_again_is_left_alone() -> None:
    x = torch.randn(4, 4, requires_grad=True)

    def twice(x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        z = y + 1
        return (y * z).sum()

    fitted = fit(twice)
    value = fitted(x)
    value.backward()
    mine, x.grad = x.grad, None
    expected = twice(x)
    expected.backward()
    assert torch.equal(value, expected)
    assert torch.equal(mine, x.grad)
    assert not any(" + " in node.op for node in fitted.plan.graph.nodes if not node.backward)


def test_an_operation_that_comes_later_writes_over_its_operand_too() -> None:
    """What lies in between does not matter, unless the operation reads it."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)

    def apart(x: torch.Tensor) -> torch.Tensor:
        y = x @ w
        other = x.exp()
        return torch.relu(y.view(2, 8)).sum() + other.sum()

    def waiting(x: torch.Tensor) -> torch.Tensor:
        y = x @ w
        other = x.exp().sum()
        return (y * other).sum()

    for function, joined in ((apart, True), (waiting, False)):
        fitted = fit(function)
        value = fitted(x)
        value.backward()
        mine, x.grad = x.grad, None
        expected = function(x)
        expected.backward()
        assert torch.equal(value, expected)
        assert torch.equal(mine, x.grad)
        x.grad = None
        products = [node.op for node in fitted.plan.graph.nodes if node.op.startswith("aten.mm") and not node.backward]
        assert products == ["aten.mm.default + aten.relu.default" if joined else "aten.mm.default"]


def test_views_that_come_later_are_moved_with_the_operation_that_reads_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    x = torch.randn(2, 3, 8)
    fitted = fit(copy.deepcopy(model))
    for each in (fitted, model):
        each(x).square().sum().backward()
    assert any(node.op == "aten.mm.default + aten.threshold_backward.default" for node in fitted.plan.graph.nodes)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(fitted.parameters(), model.parameters()))


def test_a_dropout_of_nothing_copies_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    fitted = fit(copy.deepcopy(model))
    for each in (fitted, model):
        each(x).sum().backward()
    assert not any("clone" in node.op for node in fitted.plan.graph.nodes)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(fitted.parameters(), model.parameters()))


def test_a_copy_that_is_seen_outside_stays_a_copy() -> None:
    x = torch.randn(4, 4, requires_grad=True)

    def copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ x
        return x.clone(), y, y.clone(), y.tanh().clone().view(-1)

    results = fit(copies)(x)
    places = [one.untyped_storage().data_ptr() for one in (x, *results)]
    assert len(set(places)) == 5
    assert all(torch.equal(a, b) for a, b in zip(results, copies(x)))


def test_batch_norms_may_be_replayed_unless_another_reads_their_statistics() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6)
    once = nn.Sequential(nn.Linear(6, 6), norm, nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6))
    twice = nn.Sequential(nn.Linear(6, 6), norm, nn.ReLU(), nn.Linear(6, 6), norm)
    for model, expected in ((once, [True, True]), (twice, [False, True])):
        graph = plan(model, torch.randn(8, 6)).graph
        assert [n.replayable for n in graph.nodes if "batch_norm" in n.op and not n.backward] == expected


def test_batch_norm_by_another_kernel_is_replayed_without_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernels stand in for cuDNN's, which only a GPU has."""
    aten = torch.ops.aten

    class Stand:
        def cudnn_batch_norm(self, *args: Any) -> Any:
            return *aten.native_batch_norm(*args), torch.zeros(24, dtype=torch.uint8)

        def cudnn_batch_norm_backward(self, data: Any, gradient: Any, weight: Any, *rest: Any) -> Any:
            _, _, mean, deviation, eps, reserve = rest
            assert reserve.numel() == 24
            args = (gradient, data, weight, None, None, mean, deviation, True, eps, [True] * 3)
            return aten.native_batch_norm_backward(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(aten, name)

    monkeypatch.setattr(kernels, "aten", Stand())
    monkeypatch.setattr(kernels, "_cudnn", lambda node: True)
    monkeypatch.setattr(kernels, "_reserve", lambda data: 24)
    torch.manual_seed(0)
    model, loss = batch_norm()
    theirs = copy.deepcopy(model)
    graph = plan(model[:3], torch.randn(3, 2, 6, 6)).graph
    assert any(node.op == "cudnn_norm + aten.relu.default" and node.replayable for node in graph.nodes)
    seen: list[Any] = []
    least = smallest(_whole(model, loss))
    fitted = fit(model, memory=least + 500, time_limit=2)
    for run, each in ((fitted, model), (theirs, theirs)):
        for _ in range(2):
            each.zero_grad()
            loss(run).backward()
        seen.append([*(p.grad for p in each.parameters()), *each.buffers()])
    assert any("cudnn_norm" in name for name in fitted.plan.replayed)
    assert all(torch.equal(a, b) for a, b in zip(*seen))


def _whole(model: nn.Module, loss: Any) -> Any:
    fitted = fit(copy.deepcopy(model))
    loss(fitted)
    return fitted.plan.graph


def test_a_step_over_the_budget_is_planned_again_with_the_excess_left_free() -> None:
    fitted = fit(nn.Linear(4, 4), memory=1000)
    x = torch.ones(2, 4)
    fitted(x)
    planner = fitted._runner.planner
    made = planner.made[-1]
    on_device = Captured(None, 1, made.graph, {}, {}, made.fingerprint, "cuda:0")  # type: ignore[arg-type]
    assert planner.budget(on_device) == 995
    planner.seen(on_device, made, 1030)
    assert made.measured == 1030
    assert planner.budget(on_device) == 965
    assert len(fitted.plans) == 1
    fitted(x)
    fitted(x)
    assert len(fitted.plans) == 2


def test_a_step_that_stays_over_the_budget_is_not_planned_for_ever() -> None:
    planner = Planner(memory=100_000)
    fitted = fit(nn.Linear(4, 4))
    fitted(torch.ones(2, 4))
    on_device = Captured(None, 1, fitted.plan.graph, {}, {}, "x", "cuda:0")  # type: ignore[arg-type]
    budgets = [planner.budget(on_device)]
    while budgets[-1]:
        planner.seen(on_device, fitted.plan, 100_001)
        budgets.append(planner.budget(on_device))
    assert budgets[:3] == [99_500, 99_000, 98_500]
    assert len(budgets) < 12


def test_a_step_within_the_budget_stays() -> None:
    planner = Planner(memory=1000)
    fitted = fit(nn.Linear(4, 4), memory=1000)
    fitted(torch.ones(2, 4))
    planner.seen(Captured(None, 1, fitted.plan.graph, {}, {}, "x", "cuda:0"), fitted.plan, 1000)  # type: ignore[arg-type]
    assert not planner.outdated
    assert planner.excess == {}
