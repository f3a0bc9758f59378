"""Random programs: whatever is fitted into whatever budget has the bits of the program by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from fit_cases import captured
from random_models import ROWS, WIDTH, RandomModel, WithoutLoss
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from pebbling.errors import BudgetError
from pebbling.torch.models import Measured
from pebbling.torch.models.host_dropout import host_dropout, host_dropout_backward


def outcome(
    model: nn.Module, run: Any, inputs: tuple[torch.Tensor, ...], losses: Sequence[Any] = ()
) -> list[torch.Tensor | None]:
    """Results of two steps, gradients, buffers, and the next random number."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    results: list[torch.Tensor | None] = []
    for _ in range(2):
        leaves = tree_leaves(run(*inputs))
        sum(loss(leaf) for loss, leaf in zip(losses, leaves)).backward() if losses else sum(leaves).backward()
        results += [leaf.detach() for leaf in leaves]
    return [*results, *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers()), torch.rand(1)]


def same(mine: list[torch.Tensor | None], theirs: list[torch.Tensor | None]) -> bool:
    """Whether all bits are the same; programs like these come across numbers that are none."""

    def alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
        if one is None or other is None:
            return one is other
        return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(0.0), other.nan_to_num(0.0))

    return len(mine) == len(theirs) and all(map(alike, mine, theirs))


@pytest.mark.parametrize("seed", [*range(7), 11, 31, 32])
def test_a_random_program_has_the_same_bits_in_every_budget(seed: int) -> None:
    """11 has a dropout that rounds, 31 and 32 norms whose statistics another norm reads: each was wrong once."""
    base = RandomModel(seed)
    inputs = (torch.randn(ROWS, WIDTH), torch.randint(7, (ROWS,)))
    plain, free, tried = (copy.deepcopy(base) for _ in range(3))
    expected = outcome(plain, plain, inputs)
    unlimited = captured(free)
    assert same(outcome(free, unlimited, inputs), expected)
    with pytest.raises(BudgetError) as refused:
        captured(tried, memory=1, time_limit=0.5)(*inputs)
    least = int(refused.value.minimum or 0)
    for memory in (least, (least + unlimited.plan.peak) // 2):
        model = copy.deepcopy(base)
        fitted = captured(model, memory=memory, time_limit=0.5)
        assert same(outcome(model, fitted, inputs), expected)
        model.zero_grad(set_to_none=True)
        with Measured("cpu") as memory_of:
            sum(tree_leaves(fitted(*inputs))).backward()
        # The sum of several results is made outside.
        assert memory_of.peak <= memory + 64


LOSSES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda y: y.sum(),
    lambda y: y.sin().mean(),
    lambda y: y.sum(-1).square().sum() if y.dim() else y,
    lambda y: y.mean(0).square().sum() if y.dim() else y,
    lambda y: (y.t() * WEIGHTS[: y.shape[-1], : y.shape[0]]).sum() if y.dim() == 2 else y.square().sum(),
    lambda y: y[..., ::2].sin().sum() if y.dim() else y,
    lambda y: y.reshape(-1).flip(0).cumsum(0).sum(),
    lambda y: y.detach().sum(),
]
WEIGHTS = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seed", [*range(6), 52])
def test_a_random_program_takes_gradients_in_any_layout(seed: int) -> None:
    """In 52 an operation that writes over its second operand would take the layout of that."""
    base = WithoutLoss(seed)
    inputs = (torch.randn(ROWS, WIDTH), torch.randint(7, (ROWS,)))
    model = copy.deepcopy(base)
    fitted = captured(model)
    for first in range(len(LOSSES)):
        losses = [LOSSES[(first + 3 * each) % len(LOSSES)] for each in range(3)]
        plain = copy.deepcopy(base)
        model.load_state_dict(base.state_dict())
        assert same(outcome(model, fitted, inputs, losses), outcome(plain, plain, inputs, losses))
    assert len(fitted.plans) == 1


def test_numbers_that_nobody_reads_are_drawn() -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def wasteful(x: torch.Tensor) -> torch.Tensor:
        y = x @ weight
        functional.dropout(y, 0.5)
        return functional.dropout(y, 0.3).sum()

    seen = []
    for run in (wasteful, captured(wasteful), captured(wasteful, memory="1MiB")):
        torch.manual_seed(0)
        seen.append((run(torch.ones(4, 4)), torch.rand(1)))
    assert all(torch.equal(a, b) for each in seen[1:] for a, b in zip(each, seen[0]))


def test_results_of_one_operation_that_are_added_stay_apart() -> None:
    """Attention of something with itself: the sum of two of its gradients can't be one node with both."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 8, requires_grad=True)

    def attention(x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x).square().sum()

    attention(x).backward()
    expected, x.grad = x.grad, None
    captured(attention, memory="1MiB")(x).backward()
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dropout_on_the_host_rounds_as_eager_mode_does(kind: torch.dtype) -> None:
    for p in (0.07, 0.1, 0.15, 1 / 3, 0.47, 0.5, 0.83, 0.99, 1.0):
        x = torch.randn(33, 7).to(kind).requires_grad_()
        pulled = torch.randn(33, 7).to(kind)
        torch.manual_seed(0)
        expected = functional.dropout(x, p)
        number = torch.rand(1)
        (gradient,) = torch.autograd.grad(expected, x, pulled)
        torch.manual_seed(0)
        found, kept = host_dropout(x.detach(), p)
        assert torch.equal(torch.rand(1), number)
        for mine, theirs in ((found, expected.detach()), (host_dropout_backward(pulled, kept, p), gradient)):
            assert torch.equal(mine, theirs)
            assert torch.equal(mine.signbit(), theirs.signbit())
