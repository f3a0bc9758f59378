"""Loops as a source transform gives them: flat leaves, an early end, outputs of the last step and of every step."""

from __future__ import annotations

import itertools

import pytest
import torch

from flat_loops import run
from pebbling.loops import Options


def rich(item, state, consts):
    """Two leaves of state, an output of the last step, and one that every step adds."""
    x, count = state
    (a,) = consts
    y = torch.sin(x * a) + item
    return bool(count >= 14), [y, count + 1], [y * 2], [y.sum()]


def straight(step, items, state, consts):
    emitted, outs, flag = [], [], None
    for item in items:
        flag, state, outs, part = step(item, state, consts)
        emitted += part
        if flag:
            break
    return state, outs, emitted, flag


@pytest.mark.parametrize("slots", [1, 3, None])
@pytest.mark.parametrize("stops", [True, False])
def test_outputs_of_all_kinds(slots, stops):
    torch.manual_seed(0)
    x, a = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    items = [0.1 * i for i in range(40 if stops else 12)]

    def value(state, outs, emitted):
        return state[0].sum() + (outs[0] ** 2).sum() + sum((k + 1) * e for k, e in enumerate(emitted))

    state, outs, emitted, flag = straight(rich, items, [x, 0], [a])
    expected = torch.autograd.grad(value(state, outs, emitted), [x, a])
    found = run(rich, items, [x, 0], [a], Options(slots=slots), stops=stops)
    assert found.steps == (15 if stops else 12)
    assert found.flag == flag
    assert torch.equal(found.state[0], state[0])
    assert found.state[1] == state[1]
    total = value(found.state, found.outs, [e for part in found.emitted for e in part])
    for one, two in zip(expected, torch.autograd.grad(total, [x, a])):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_a_predicate_and_endless_items():
    x = torch.randn(4, requires_grad=True)

    def step(item, state, consts):
        return None, [torch.tanh(state[0]) * 1.5 + item], [], []

    found = run(step, itertools.count(), [x], (), Options(slots=3), more=lambda state, i: i < 17)
    expected = x
    for i in range(17):
        expected = torch.tanh(expected) * 1.5 + i
    assert found.steps == 17
    assert torch.equal(torch.autograd.grad(found.state[0].sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


def test_a_step_may_write_into_leaves_that_it_says_it_writes_into():
    x, a = torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)

    def step(item, state, consts):
        (u,) = state
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) * consts[0][1:-1]
        return None, [u], [], []

    before = x.detach().clone()
    found = run(step, range(12), [x], [a], Options(slots=3), written=[0]).state[0]
    assert torch.equal(x.detach(), before)
    u = x.clone()
    for i in range(12):
        step(i, [u], [a])
    assert torch.equal(found, u)
    ours, theirs = (torch.autograd.grad((out**2).sum(), [x, a]) for out in (found, u))
    for one, two in zip(ours, theirs):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
    with torch.no_grad():
        assert torch.equal(run(step, range(12), [x], [a], written=[0]).state[0], u)
    assert torch.equal(x.detach(), before)
