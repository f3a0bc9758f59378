"""``memory=`` bounds what a loop and its way back allocate, and more memory never costs more steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_bodies import plain

import pebbling as pb
from pebbling.torch import loop
from pebbling.torch.tracked import Tracked


def small_matrix():
    w = torch.randn(64, 64, requires_grad=True)
    x = torch.randn(200, 64, requires_grad=True)
    return lambda run, **b: run(lambda i, s, w: torch.tanh(s @ w), x, 60, w, **b).sum()


def network():
    net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 32), nn.LayerNorm(32))
    x = torch.randn(100, 32)
    return lambda run, **b: (run(lambda i, s: s + net(s), x, 50, **b) ** 2).mean()


def pair():
    x, v = torch.randn(5000, requires_grad=True), torch.randn(5000, requires_grad=True)
    k = torch.randn(5000, requires_grad=True)

    def body(i, s, k):
        x, v = s
        v = v - 0.1 * torch.sin(k * x) * x
        return x + 0.1 * v, v

    return lambda run, **b: run(body, (x, v), 80, k, **b)[0].sum()


def peak(loss, run, **budget):
    with Tracked() as memory:
        loss(run, **budget).backward()
    return memory.peak


@pytest.mark.parametrize("make", [small_matrix, network, pair], ids=lambda make: make.__name__)
def test_budgets_bound_the_peak(make):
    loss = make()
    everything = peak(loss, plain)
    with pytest.raises(pb.BudgetError) as refused:
        loss(loop, memory=1000)
    least = refused.value.minimum
    assert least < 0.4 * everything
    for budget in [least + (1.2 * everything - least) * i // 9 for i in range(10)]:
        assert peak(loss, loop, memory=budget) <= budget


def test_more_memory_never_takes_more_steps_and_enough_takes_none():
    counts, calls = [], []
    w = torch.randn(32, 32, requires_grad=True)
    x = torch.randn(500, 32, requires_grad=True)

    def body(i, s, w):
        calls.append(i)
        return torch.tanh(s @ w)

    for budget in ("600KB", "800KB", "1MB", "2MB", "4MB", "40MB"):
        loop(body, x, 50, w, memory=budget).sum().backward()
        calls.clear()
        loop(body, x, 50, w, memory=budget).sum().backward()
        counts.append(len(calls))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 50, "what was measured is remembered"


def test_while_loops_within_a_budget():
    x = torch.rand(5000, requires_grad=True)

    def loss(run, **b):
        return run(lambda i, s: torch.sin(s) * 1.01, x, lambda s, i: i < 70, **b).sum()

    for budget in (250_000, 400_000, 900_000):
        assert peak(loss, loop, memory=budget) <= budget


def test_gradients_are_the_same_within_any_budget():
    loss = small_matrix()
    x = loss.__closure__
    tensors = [cell.cell_contents for cell in x]
    expected = torch.autograd.grad(loss(plain), tensors)
    for budget in ("500KB", "1MB", "3MB"):
        found = torch.autograd.grad(loss(loop, memory=budget), tensors)
        assert all(map(torch.equal, expected, found))


def test_too_small_a_budget_names_the_smallest_and_that_one_works():
    loss = pair()
    with pytest.raises(pb.BudgetError, match="smallest budget is") as refused:
        loss(loop, memory="1KB")
    loss(loop, memory=refused.value.minimum).backward()


def test_second_order_takes_the_memory_of_the_slots():
    x, v = torch.randn(20_000), torch.randn(20_000)

    def f(run, **b):
        return lambda x: run(lambda i, s: torch.sin(s) * 1.01, x, 120, **b).sum()

    def measured(run, **b):
        with Tracked() as memory:
            torch.func.jvp(torch.func.grad(f(run, **b)), (x,), (v,))
        return memory.peak

    measured(plain)
    assert measured(loop, slots=6) < 0.2 * measured(plain)
