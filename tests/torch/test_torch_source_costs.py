"""What checkpointed plain loops cost on tensors: steps evaluated, memory, and what explain says."""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007

from __future__ import annotations

import gc
import os

import pytest
import torch
from tensor_numpy import FLOAT
from torch_source_programs import DRAWS, A, Opaque, X, given

import pebbling as pb
from pebbling.chain.binomial import advances
from pebbling.torch import Tracked


def decay(x, a, steps):
    for i in range(steps):
        x = torch.sin(x * a)
    return x


def test_the_way_back_can_be_taken_twice_and_second_derivatives_are_refused():
    x, a, _ = given()
    value = pb.checkpoint(slots=2)(decay)(x, a, 9).sum()
    first = torch.autograd.grad(value, [x, a], retain_graph=True)
    second = torch.autograd.grad(value, [x, a])
    assert all(map(torch.equal, first, second))
    (grad,) = torch.autograd.grad(pb.checkpoint(slots=2)(decay)(x, a, 9).sum(), x, create_graph=True)
    with pytest.raises(pb.PebblingError, match="twice in reverse"):
        grad.sum().backward()
    with pytest.raises(pb.PebblingError, match=r"transform of torch\.func"):
        torch.func.grad(lambda x: pb.checkpoint(slots=2)(decay)(x, A, 9).sum())(X)


def test_without_gradients_a_loop_is_a_plain_one():
    calls = []

    def f(x, seen):
        for i in range(6):
            x = torch.sin(x)
            seen(i)
        return x

    with torch.no_grad():
        pb.checkpoint(slots=2)(f)(given()[0], calls.append)
    with torch.inference_mode():
        pb.checkpoint(slots=2)(f)(X, calls.append)
    assert calls == [*range(6)] * 2


def test_steps_are_evaluated_as_often_as_the_plan_says(tmp_path):
    file = os.open(tmp_path / "calls", os.O_CREAT | os.O_WRONLY)

    def f(x):
        for i in range(100):
            os.write(file, b".")
            x = torch.sin(x)
        return x.sum()

    x = torch.rand(40_000, requires_grad=True)
    pb.checkpoint(schedule=pb.Revolve(100, 5))(f)(x).backward()
    os.close(file)
    assert (tmp_path / "calls").stat().st_size == 100 + advances(100, 5)


def draws(x):
    for i in range(5):
        x = x * torch.rand(6, generator=DRAWS, dtype=FLOAT)
    return x.sum()


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_global_generators_and_objects_that_copy_themselves_are_carried(slots):
    def copies(x):
        opaque = Opaque(x * 2.0)
        for i in range(4):
            x = opaque.times(x)
        return x.sum()

    for f in (draws, copies):
        grads = []
        for function in (f, pb.checkpoint(slots=slots)(f)):
            DRAWS.manual_seed(3)
            x = torch.linspace(0.1, 1.0, 6, dtype=FLOAT, requires_grad=True)
            function(x * 1.0).backward()
            grads.append((x.grad, torch.rand(1, generator=DRAWS)))
        assert torch.equal(grads[0][0], grads[1][0])
        assert torch.equal(grads[0][1], grads[1][1])


def spread(u, a, steps):
    for i in range(steps):
        u = u + 0.1 * a * (torch.roll(u, 1) - u)
    return u


def spread_in_place(u, a, steps):
    u = u * 1.0
    for i in range(steps):
        u[1:-1] += 0.1 * a[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2]).clone()
    return u


def peak(function, steps=60, size=30_000):
    u, a = torch.rand(size, requires_grad=True), torch.rand(size, requires_grad=True)
    gc.collect()
    with Tracked() as memory:
        function(u, a, steps).sum().backward()
    return memory.peak / (u.numel() * u.element_size())


@pytest.mark.parametrize("function", [spread, spread_in_place])
def test_memory_follows_the_slots_not_the_length(function):
    assert peak(function) > 60
    through = pb.checkpoint(slots=5)(function)
    assert peak(through) < 5 + 14
    assert peak(through, 120) <= peak(through, 60) + 1


def test_explain_says_what_a_loop_of_tensors_will_take():
    u, a = torch.rand(30_000), torch.rand(30_000)
    (loop,) = pb.explain(pb.checkpoint(schedule=pb.Revolve(60, 5))(spread), u, a, 60).loops
    assert loop.checkpointed
    assert (loop.steps, loop.state_bytes, loop.slots) == (60, 120_000, 5)
    assert loop.forwards == 60 + advances(60, 5)
    measured = peak(pb.checkpoint(schedule=pb.Revolve(60, 5))(spread)) * 120_000
    assert 0.8 * measured < loop.peak < 1.5 * measured


def spread_in_rounds(u, a, steps):
    for i in range(6):
        for j in range(steps // 6):
            u = u + 0.1 * a * torch.sin(torch.roll(u, 1) - u)
        u = u * 0.99
    return u


@pytest.mark.parametrize("memory", [27, 40, 80])
def test_a_budget_in_bytes_is_kept_by_loops_inside_of_loops(memory):
    size = 30_000 * 4
    assert peak(pb.checkpoint(memory=memory * size)(spread_in_rounds)) <= memory


@pytest.mark.parametrize("function", [spread, spread_in_place])
def test_a_budget_in_bytes_is_kept(function):
    size = 30_000 * 4
    with pytest.raises(pb.BudgetError) as refusal:
        peak(pb.checkpoint(memory="100KB")(function))
    least = refusal.value.minimum
    assert least < 25 * size
    for budget in (least, least + 6 * size, least + 30 * size):
        # What the function makes before its loop is not the loop's.
        own = size if function is spread_in_place else 0
        assert peak(pb.checkpoint(memory=budget)(function)) * size <= budget + own
