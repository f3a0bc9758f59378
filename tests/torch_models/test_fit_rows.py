"""A loss over many classes that runs some rows at a time: the same bits in a third of the memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import captured
from test_fit_budget import measured
from torch import nn
from torch.nn import functional

from pebbling.errors import BudgetError
from pebbling.torch import plan
from pebbling.torch.models.planner import Planner


class Classes(nn.Module):
    """Scores of many classes and their loss, in float32 whatever the model is in."""

    def __init__(self, kind: torch.dtype = torch.float32, classes: int = 1000, bias: bool = False, **options: Any):
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, classes, bias=bias)
        self.options = options
        self.to(kind)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        found = self.second(torch.tanh(self.first(x))).float()
        return found.view(-1, found.shape[-1])

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        return functional.cross_entropy(self.scores(x), classes.view(-1), **self.options).square().sum()


def example(model: Classes, samples: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(2, samples // 2, 24).to(model.first.weight.dtype)
    classes = torch.randint(model.second.out_features, x.shape[:2])
    classes[0, ::7] = model.options.get("ignore_index", -100)
    return x, classes


def outcome(model: nn.Module, run: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Results and gradients of one step, those of the first input among them."""
    x = inputs[0].clone().requires_grad_()
    model.zero_grad()
    results = torch.utils._pytree.tree_leaves(run(x, *inputs[1:]))
    sum(result.sum() for result in results).backward()
    return [*results, x.grad, *(p.grad.clone() for p in model.parameters())]


def in_parts(fitted: Any) -> list[str]:
    """Operations that run some rows at a time."""
    return [node.name for node in fitted.plan.graph.nodes if "_to_" in node.name and "log_softmax" in node.op]


KINDS = (torch.float32, torch.bfloat16, torch.float16)
OPTIONS = (
    {},
    {"bias": True},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 3},
    {"weighted": True, "bias": True},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_same_bits_in_a_part_of_the_memory(kind: torch.dtype, options: dict[str, Any]) -> None:
    options = dict(options)
    if options.pop("weighted", False):
        torch.manual_seed(2)
        options["weight"] = torch.rand(1024)
    torch.manual_seed(0)
    model = Classes(kind, 1024, **options)
    inputs = example(model)
    plain = copy.deepcopy(model)
    peak = measured(plain, inputs)
    fitted = captured(model, memory=int(0.5 * peak), time_limit=2)
    expected = outcome(plain, plain, *inputs)
    assert all(torch.equal(a, b) for a, b in zip(outcome(model, fitted, *inputs), expected))
    assert in_parts(fitted)
    assert measured(fitted, inputs) <= 0.5 * peak
    # Once more, on what the first step left.
    assert all(torch.equal(a, b) for a, b in zip(outcome(model, fitted, *inputs), expected))


@pytest.mark.parametrize("samples", [66, 128, 130, 1000, 2050])
@pytest.mark.parametrize("classes", [7, 33, 513])
def test_any_number_of_rows_and_classes(samples: int, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planner, "_better", lambda self, ways: self._solve(ways[-1]))
    torch.manual_seed(0)
    for kind in KINDS[:2]:
        model = Classes(kind, classes)
        inputs = example(model, samples)
        fitted = captured(model, memory="1GB")
        expected = outcome(model, model, *inputs)
        assert all(torch.equal(a, b) for a, b in zip(outcome(model, fitted, *inputs), expected))
        assert in_parts(fitted)


def test_with_enough_memory_nothing_runs_in_parts() -> None:
    model = Classes()
    inputs = example(model)
    for memory in (None, 2 * measured(model, inputs)):
        fitted = captured(model, memory=memory)
        outcome(model, fitted, *inputs)
        assert not in_parts(fitted)
        assert fitted.plan.overhead == 0.0


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
def test_a_retained_graph_can_be_gone_through_again(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Classes(kind)
    inputs = example(model)
    fitted = captured(model, memory=int(0.5 * measured(model, inputs)), time_limit=2)
    expected = outcome(model, model, *inputs)[2:]
    fitted(*inputs).backward()
    value = fitted(*inputs)
    assert in_parts(fitted)
    for retain in (True, True, False):
        model.zero_grad()
        value.backward(retain_graph=retain)
        assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected))


class Shown(Classes):
    """The scores are a result as well."""

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        scores = self.second(torch.tanh(self.first(x)))
        flat = scores.float().view(-1, scores.shape[-1])
        return functional.cross_entropy(flat, classes.view(-1)), scores


class Read(Classes):
    """Somebody else reads the logarithms, after the loss has."""

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        logs = functional.log_softmax(self.scores(x), 1)
        return functional.nll_loss(logs, classes.view(-1)), logs.exp().square().mean()


class Twice(Classes):
    """Two losses."""

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        flat = classes.view(-1)
        return [functional.cross_entropy(self.scores(each), flat) for each in (x, x.flip(0))]


class Handed(Classes):
    """The logarithms are a result as well."""

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        logs = functional.log_softmax(self.scores(x), 1)
        return functional.nll_loss(logs, classes.view(-1)), logs


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
@pytest.mark.parametrize("form", [Shown, Read, Twice, Handed])
def test_what_others_read_is_not_written_over(form: type[Classes], kind: torch.dtype) -> None:
    torch.manual_seed(0)
    model = form(kind)
    inputs = example(model)
    expected = outcome(model, model, *inputs)
    least = 0
    try:
        outcome(model, captured(model, memory=1000, time_limit=2), *inputs)
    except BudgetError as error:
        least = int(error.minimum or 0)
    fitted = captured(model, memory=least, time_limit=2)
    assert all(torch.equal(a, b) for a, b in zip(outcome(model, fitted, *inputs), expected))


def test_the_gradient_of_scores_that_were_given_is_its_own() -> None:
    torch.manual_seed(0)
    scores, classes = torch.randn(300, 200, requires_grad=True), torch.randint(200, (300,))

    def loss(scores: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores * 2.0, classes)

    loss(scores).backward()
    expected, scores.grad = scores.grad, None
    size = 300 * 200 * 4
    fitted = captured(loss, memory=3 * size, time_limit=2)
    fitted(scores).backward()
    assert torch.equal(scores.grad, expected)
    assert scores.grad.untyped_storage().nbytes() == size


def test_a_kept_plan_is_found_again_with_its_way_of_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Classes(torch.bfloat16, 1024)
    inputs = example(model)
    memory = int(0.5 * measured(model, inputs))
    expected = outcome(model, model, *inputs)
    first = captured(model, memory=memory, plans=tmp_path, time_limit=2)
    outcome(model, first, *inputs)
    monkeypatch.setattr(Planner, "_better", None)
    second = captured(model, memory=memory, plans=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(outcome(model, second, *inputs), expected))
    assert in_parts(first) == in_parts(second) != []
    assert second.plan.steps == first.plan.steps


def test_the_plan_counts_what_running_in_parts_costs(tmp_path: Path) -> None:
    model = Classes()
    inputs = example(model)
    found = plan(model, *inputs, memory=int(0.5 * measured(model, inputs)), time_limit=2)
    assert found.plain is not None
    assert found.overhead == max(0.0, found.graph_plan.time / found.plain - 1)
    slower = replace(found, plain=found.graph.time / 1.25)
    assert slower.in_parts == pytest.approx(0.25)
    assert slower.overhead >= slower.in_parts
    assert "25.00% more, as the loss runs some rows at a time" in str(slower)
    slower.report(tmp_path / "plan.html")
    assert "which adds 25.0%" in (tmp_path / "plan.html").read_text(encoding="utf-8")
