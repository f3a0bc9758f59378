"""Gradients of outputs that come in other layouts than the outputs have: as eager mode takes them, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fit_cases import captured
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from pebbling.graph import smallest

IMAGE, ROWS, WORDS = (4, 8, 10, 10), (40, 16), (4, 12, 16)


class Weighted(nn.Module):
    """A function of a tensor and a matrix."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


def doubled(values: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.view_as_complex(values.view(*values.shape[:-1], -1, 2)) * 2)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear, rows": (lambda: nn.Linear(16, 24), ROWS),
    "linear, words": (lambda: nn.Linear(16, 24), WORDS),
    "convolution": (lambda: nn.Conv2d(8, 12, 3, 1, 1), IMAGE),
    "batch norm": (lambda: nn.BatchNorm2d(8), IMAGE),
    "batch norm of rows": (lambda: nn.BatchNorm1d(16), ROWS),
    "batch norm, evaluated": (lambda: nn.BatchNorm2d(8).eval(), IMAGE),
    "layer norm": (lambda: nn.LayerNorm(16), WORDS),
    # Eager mode makes their gradients dense itself, which their kernels count on.
    "group norm": (lambda: nn.GroupNorm(2, 8), IMAGE),
    "group norm, later": (lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU()), IMAGE),
    "distances": (lambda: Weighted(lambda x, w: torch.cdist(x @ w, x)), WORDS),
    "complex": (lambda: Weighted(lambda x, w: doubled(x @ w)), WORDS),
    "strides": (lambda: Weighted(lambda x, w: (x @ w).as_strided((4, 5), (7, 1), 3)), WORDS),
    "instance norm": (lambda: nn.InstanceNorm2d(8, affine=True), IMAGE),
    "softmax": (lambda: nn.Softmax(-1), WORDS),
    "activation": (lambda: nn.Sequential(nn.Linear(16, 16), nn.SiLU()), WORDS),
    "attention": (lambda: Weighted(lambda x, w: functional.scaled_dot_product_attention(x @ w, x, x)), (4, 2, 6, 16)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), WORDS),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.MaxPool2d(2)), IMAGE),
    "transposition": (lambda: Weighted(lambda x, w: (x @ w).transpose(1, 2)), WORDS),
    "joined": (lambda: Weighted(lambda x, w: torch.cat([x @ w, x * w[0]], -1)), WORDS),
    "flattened": (lambda: Weighted(lambda x, w: (x @ w).flatten(1)), WORDS),
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one number": lambda y: torch.full((), 0.37).expand(y.shape),
    "the same in every row": lambda y: torch.randn(y.shape[1:]).expand(y.shape),
    "the same in every column": lambda y: torch.randn(*y.shape[:-1], 1).expand(y.shape),
    "transposed": lambda y: torch.randn(*y.shape[:-2], y.shape[-1], y.shape[-2]).transpose(-1, -2),
    "every other": lambda y: torch.randn(*y.shape[:-1], 2 * y.shape[-1])[..., ::2],
    "as the output": lambda y: torch.randn_like(y),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_in_any_layout_are_taken_as_they_come(name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model, x = make(), torch.randn(shape, requires_grad=True)
    theirs = copy.deepcopy(model)
    fitted = captured(model)
    for layout in LAYOUTS.values():
        seen: list[Any] = []
        for run, each in ((fitted, model), (theirs, theirs)):
            each.zero_grad()
            y = run(x)
            torch.manual_seed(1)
            gradient = torch.autograd.grad(y, [x, *each.parameters()], layout(y))
            seen.append(gradient)
        assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert len(fitted.plans) == 1


class Heads(nn.Module):
    """Statistics that change, a head in each of two layouts, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
        self.one, self.other = nn.Linear(16, 24), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.body(x)
        return y.square().mean(), self.one(y), self.other(y), y.detach()


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (1, 2), (0, 2), (0, 1, 2)])
def test_several_outputs_some_of_which_are_left_out(used: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = Heads(), torch.randn(40, 16, requires_grad=True)
    theirs = copy.deepcopy(model)
    fitted = captured(model)
    for _ in range(2):
        for run in (fitted, theirs):
            run.zero_grad()
            results = run(x)
            torch.stack([results[each].sum() for each in used]).sum().backward(retain_graph=True)
            results[used[-1]].mean().backward()
        for mine, wanted in zip(model.parameters(), theirs.parameters(), strict=True):
            assert (mine.grad is None) == (wanted.grad is None)
            assert mine.grad is None or torch.equal(mine.grad, wanted.grad)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), theirs.buffers()))


def test_results_of_a_graph_that_has_effects() -> None:
    """A solver that may fail: torch keeps the order of its effects by results of the graph that nobody else sees."""

    def solved(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linalg.inv(x + 3 * torch.eye(4)), (x * x).mT

    x = torch.randn(6, 4, 4, requires_grad=True)
    for used in ((0,), (1,), (0, 1)):
        runs = (captured(solved), solved)
        found = [torch.autograd.grad(sum(run(x)[each].sum() for each in used), x)[0] for run in runs]
        assert torch.equal(*found)


def test_operators_of_others_get_gradients_as_they_were_traced() -> None:
    strides: list[tuple[int, ...]] = []

    @torch.library.custom_op("pebbling_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        strides.append(x.stride())
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    twice.register_autograd(lambda ctx, gradient: twice(gradient))
    x = torch.randn(5, 3, requires_grad=True)
    y = captured(lambda x: twice(x.sin()))(x)
    strides.clear()
    y.sum().backward()
    assert strides == [(3, 1)]
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * x.detach().cos())


class Infinite(nn.Module):
    """A loss, and a result of the same values whose derivative is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.first(x).relu()
        left, right = y.chunk(2, 1)
        return y.square().mean(), y.sqrt(), self.head(y), left.exp(), right.tanh()


@pytest.mark.parametrize("used", [(0,), (2,), (0, 2), (3,), (4,), (0, 4), (1, 2, 3)])
@pytest.mark.parametrize("share", [None, 0.0])
def test_what_the_loss_leaves_out_is_not_run(used: tuple[int, ...], share: float | None) -> None:
    torch.manual_seed(0)
    model, x = Infinite(), torch.randn(32, 6, requires_grad=True)
    theirs = copy.deepcopy(model)
    free = captured(copy.deepcopy(model))
    free(x)
    fitted = captured(model, None if share is None else smallest(free.plan.graph))
    grads = []
    for run in (fitted, theirs):
        x.grad = None
        results = run(x)
        sum(results[each].sum() for each in used).backward()
        grads.append([x.grad, *(parameter.grad for parameter in run.parameters())])
    for mine, wanted in zip(*grads, strict=True):
        assert (mine is None) == (wanted is None)
        assert mine is None or torch.equal(mine.isnan(), wanted.isnan())
        assert mine is None or torch.equal(mine.nan_to_num(), wanted.nan_to_num())
    assert not torch.isnan(model.first.weight.grad).any() or 1 in used


def test_the_gradients_that_did_not_come_cost_no_operations() -> None:
    model, x = Infinite(), torch.randn(32, 6)
    fitted = captured(model)
    counted = []
    for used in (range(5), (0,)):
        results = fitted(x)
        with Counted() as operations:
            sum(results[each].sum() for each in used).backward()
        counted.append(operations.names)
    # The derivatives of the mean and its square, of relu and of the first layer.
    assert "sqrt_backward" not in counted[1]
    assert len([name for name in counted[1] if name in ("mm", "addmm")]) == 1
    assert len([name for name in counted[0] if name in ("mm", "addmm")]) == 3


class Counted(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))
