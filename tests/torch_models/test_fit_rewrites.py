"""What is done to a captured graph: writing over dead operands, eager mode's kernels, a second plan."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from fit_cases import GPT, batch_norm, captured
from test_fit_budget import measured
from torch import nn

from pebbling.graph import smallest
from pebbling.torch import plan
from pebbling.torch.models import norms
from pebbling.torch.models.captured import Captured
from pebbling.torch.models.planner import Planner


def test_operations_write_over_operands_that_nobody_reads_again() -> None:
    torch.manual_seed(0)
    model, tokens = GPT(layers=1, width=16, words=500, tied=False), torch.randint(500, (4, 16))
    fitted = captured(copy.deepcopy(model))
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

    fitted = captured(twice)
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
        fitted = captured(function)
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
    fitted = captured(copy.deepcopy(model))
    for each in (fitted, model):
        each(x).square().sum().backward()
    assert any(node.op == "aten.mm.default + aten.threshold_backward.default" for node in fitted.plan.graph.nodes)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(fitted.parameters(), model.parameters()))


def test_a_dropout_of_nothing_copies_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    fitted = captured(copy.deepcopy(model))
    for each in (fitted, model):
        each(x).sum().backward()
    assert not any("clone" in node.op for node in fitted.plan.graph.nodes)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(fitted.parameters(), model.parameters()))


def test_a_copy_that_is_seen_outside_stays_a_copy() -> None:
    x = torch.randn(4, 4, requires_grad=True)

    def copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ x
        return x.clone(), y, y.clone(), y.tanh().clone().view(-1)

    results = captured(copies)(x)
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


def test_statistics_are_updated_where_they_are_with_no_copies_of_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()) for _ in range(3)))
    theirs, x = copy.deepcopy(model), torch.randn(8, 6)
    fitted = captured(model)
    for each in (fitted, theirs):
        for _ in range(3):
            each(x).sum().backward()
        with torch.no_grad():
            each(x)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), theirs.buffers()))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), theirs.parameters()))
    for graph in (fitted.plans[0].graph, fitted.plans[1].graph):
        operators = [node.op for node in graph.nodes]
        assert operators.count("aten._foreach_add_.Scalar") == 1
        assert not any("clone" in each or "aten.add.Tensor" in each for each in operators)
        norms = [node for node in graph.nodes if "batch_norm" in node.op and not node.backward]
        # The result and what its derivative reads: no statistics.
        assert [len(node.makes) for node in norms] == [3, 3, 3]


class Reads(nn.Module):
    """Reads its norm's statistics before and after it runs, and may forget what the norm returns."""

    def __init__(self, early: bool, late: bool, forgets: bool) -> None:
        super().__init__()
        self.norm, self.early, self.late, self.forgets = nn.BatchNorm1d(6), early, late, forgets

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.norm.running_mean * 2 if self.early else x.new_zeros(1)
        y = self.norm(x)
        after = self.norm.running_var * 3 if self.late else x.new_zeros(1)
        count = self.norm.num_batches_tracked + 1 if self.late else x.new_zeros(1)
        return before, x.tanh() if self.forgets else y, after, count


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
def test_statistics_that_others_read_are_what_they_would_be(early: bool, late: bool, forgets: bool) -> None:
    torch.manual_seed(0)
    model, x = Reads(early, late, forgets), torch.randn(8, 6, requires_grad=True)
    theirs = copy.deepcopy(model)
    fitted = captured(model)
    for _ in range(3):
        mine, wanted = fitted(x), theirs(x)
        assert all(torch.equal(a, b) for a, b in zip(mine, wanted))
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), theirs.buffers()))
        assert torch.equal(*(torch.autograd.grad(each[1].sum(), x)[0] for each in (mine, wanted)))


class Stand:
    """torch's operators, with the native kernels in place of cuDNN's, which only a GPU has."""

    def cudnn_batch_norm(self, *args: Any) -> Any:
        return *torch.ops.aten.native_batch_norm(*args), torch.zeros(24, dtype=torch.uint8)

    def cudnn_batch_norm_backward(self, data: Any, gradient: Any, weight: Any, *rest: Any) -> Any:
        _, _, mean, deviation, eps, reserve = rest
        assert reserve.numel() == 24
        args = (gradient, data, weight, None, None, mean, deviation, True, eps, [True] * 3)
        return torch.ops.aten.native_batch_norm_backward(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops.aten, name)


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "aten", Stand())
    monkeypatch.setattr(norms, "_cudnn", lambda *_: True)
    monkeypatch.setattr(norms, "_reserve", lambda data: 24)


@pytest.mark.usefixtures("cudnn")
def test_batch_norm_by_another_kernel_is_replayed_without_its_statistics() -> None:
    torch.manual_seed(0)
    model, loss = batch_norm()
    theirs = copy.deepcopy(model)
    graph = plan(model[:3], torch.randn(3, 2, 6, 6)).graph
    assert any(node.op == "cudnn_batch_norm + aten.relu.default" and node.replayable for node in graph.nodes)
    seen: list[Any] = []
    least = smallest(_whole(model, loss))
    fitted = captured(model, memory=least + 500, time_limit=2)
    for run, each in ((fitted, model), (theirs, theirs)):
        for _ in range(2):
            each.zero_grad()
            loss(run).backward()
        seen.append([*(p.grad for p in each.parameters()), *each.buffers()])
    assert any("cudnn_batch_norm" in name for name in fitted.plan.replayed)
    assert all(torch.equal(a, b) for a, b in zip(*seen))


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False), nn.InstanceNorm2d(4, affine=True)]
)
def test_all_norms_that_eager_mode_hands_to_another_kernel_go_there(norm: Any, first: bool, frozen: bool) -> None:
    torch.manual_seed(0)
    start: list[nn.Module] = [] if first else [nn.Conv2d(4, 4, 3)]
    model = nn.Sequential(*start, copy.deepcopy(norm), nn.ReLU(), nn.Conv2d(4, 4, 3))
    for parameter in model[len(start)].parameters():
        parameter.requires_grad_(not frozen)
    theirs, x = copy.deepcopy(model), torch.randn(2, 4, 9, 9)
    fitted = captured(model)
    for each in (fitted, theirs):
        each(x).square().mean().backward()
    operators = [node.op for node in fitted.plan.graph.nodes]
    assert any("cudnn_batch_norm" in each for each in operators)
    assert not any("aten._native_batch_norm_legit" in each for each in operators)
    assert any("cudnn_batch_norm_backward" in each for each in operators) is not (first and frozen)
    for mine, wanted in zip(model.parameters(), theirs.parameters()):
        assert (mine.grad is None) == (wanted.grad is None)
        assert mine.grad is None or torch.equal(mine.grad, wanted.grad)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), theirs.buffers()))


def _whole(model: nn.Module, loss: Any) -> Any:
    fitted = captured(copy.deepcopy(model))
    loss(fitted)
    return fitted.plan.graph


def test_a_step_over_the_budget_is_planned_again_with_the_excess_left_free() -> None:
    fitted = captured(nn.Linear(4, 4), memory=1000)
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
    fitted = captured(nn.Linear(4, 4))
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
    fitted = captured(nn.Linear(4, 4), memory=1000)
    fitted(torch.ones(2, 4))
    planner.seen(Captured(None, 1, fitted.plan.graph, {}, {}, "x", "cuda:0"), fitted.plan, 1000)  # type: ignore[arg-type]
    assert not planner.outdated
    assert planner.excess == {}
