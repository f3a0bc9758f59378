"""What can't be done is refused by name: lines that can't be captured, budgets that are too small, odd arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from fit_cases import captured
from torch import nn

from pebbling.errors import BudgetError, CaptureError
from pebbling.torch import plan


class Branching(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.a(x))
        if x.sum() > 0:
            x = 2 * x
        return self.b(x).square().mean()


def test_a_line_that_cant_be_captured_is_named() -> None:
    lines, start = inspect.getsourcelines(Branching.forward)
    number = start + next(i for i, line in enumerate(lines) if "if x.sum()" in line)
    for call in (lambda: captured(Branching())(torch.ones(2, 4)), lambda: plan(Branching(), torch.ones(2, 4))):
        with pytest.raises(CaptureError, match=rf"test_fit_refusals\.py:{number}.*if x\.sum\(\) > 0.*breaks="):
            call()


# torch looks at the gradient of what comes out of the part before, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_that_part_can_be_kept_unplanned() -> None:
    torch.manual_seed(0)
    model = Branching()
    fitted = captured(model, memory="1MiB", breaks="keep")
    for x in (torch.ones(2, 4), -torch.ones(2, 4)):
        for run in (fitted, model):
            model.zero_grad()
            run(x).backward()
            gradient = model.a.weight.grad.clone()
            if run is fitted:
                mine = gradient
        assert torch.equal(mine, gradient)
    assert len(fitted.plans) >= 2


def test_a_budget_that_is_too_small_names_the_smallest_which_works() -> None:
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)]), torch.randn(16, 8)
    with pytest.raises(BudgetError, match="Sequential does not fit into memory=1000") as refusal:
        captured(model, memory=1000, time_limit=1)(x)
    least = refusal.value.minimum
    assert least is not None
    assert captured(model, memory=least, time_limit=1)(x).shape == (16, 8)
    with pytest.raises(BudgetError):
        plan(model, x, memory=least - 1, time_limit=1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"backend": "tensorrt"}, "backend='tensorrt'"),
        ({"breaks": "ignore"}, "breaks='ignore'"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"memory": "8 apples"}, "8 apples"),
    ],
)
def test_odd_arguments_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        captured(nn.Linear(2, 2), **keywords)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        captured(3)  # type: ignore[type-var]
    with pytest.raises(CaptureError, match="fit first, then wrap"):
        captured(nn.DataParallel(nn.Linear(2, 2)))


# torch looks at the gradient of what comes out of the part before, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_packed_sequences_are_refused_and_can_be_kept() -> None:
    layer, x, lengths = nn.LSTM(4, 4, batch_first=True), torch.ones(2, 3, 4), torch.tensor([3, 1])

    def packed(x: torch.Tensor) -> torch.Tensor:
        sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return layer(sequence)[0].data

    with pytest.raises(CaptureError, match=r"test_fit_refusals\.py:\d+, in packed \(sequence = "):
        captured(packed)(x)
    assert torch.equal(captured(packed, breaks="keep")(x), packed(x))


def test_a_function_without_tensors_has_nothing_to_plan() -> None:
    with pytest.raises(CaptureError, match="nothing to plan"):
        plan(lambda x: x, 3)


def test_planning_runs_nothing_and_draws_nothing() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    made = plan(model, torch.randn(4, 8, generator=torch.Generator().manual_seed(1)), memory="1MiB")
    assert torch.equal(torch.rand(3), expected)
    assert model[1].num_batches_tracked == 0
    assert made.trains


def test_planning_on_the_meta_device_estimates() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)])
        x = torch.empty(16384, 512)
    everything = plan(model, x)
    assert everything.estimated
    half = plan(model, x, memory=everything.peak * 0.8, time_limit=1)
    assert 0 < half.overhead < 1
    assert half.replayed


def test_a_derivative_that_the_meta_device_lacks_is_refused() -> None:
    with torch.device("meta"):
        layer, x, y = nn.Linear(8, 10), torch.empty(4, 8), torch.zeros(4, dtype=torch.long)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(layer(x), y)

    for _ in range(2):
        with pytest.raises(CaptureError, match="no derivative of aten::nll_loss on the meta device"):
            plan(loss, x, y)


@pytest.mark.parametrize("product", [lambda x: x.prod(1), torch.prod, lambda x: torch.prod(x, dim=0)])
def test_a_derivative_that_looks_at_values_is_refused(product: Any) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return product(x * 2)

    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(CaptureError, match="the derivative of prod looks for zeros") as caught:
        captured(doubled)(x)
    assert "test_fit_refusals.py:" in str(caught.value)
    assert torch.equal(captured(doubled)(x.detach()), doubled(x.detach()))
    assert torch.equal(captured(lambda x: (x * 2).cumprod(1)[:, -1])(x), (x * 2).cumprod(1)[:, -1])


def test_likely_mistakes_are_named() -> None:
    with pytest.raises(TypeError, match=r"not a class: fit\(Branching\(…\)\) fits a module of it"):
        captured(Branching)
    with pytest.raises(ValueError, match=r"0\.5 is less than a byte"):
        captured(nn.Linear(4, 4), memory=0.5)
