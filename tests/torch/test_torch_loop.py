"""Loops on tensors: the loss, every gradient, the buffers and the generators are those of a plain loop, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch_bodies import MODELS, plain

import pebbling as pb
from helpers import same
from pebbling.torch import loop


def outcome(make, run, **budget):
    """All that a training step leaves behind."""
    torch.manual_seed(0)
    tensors, loss = make()
    torch.manual_seed(1)
    value = loss(lambda *given: run(*given, **budget))
    value.backward()
    return [value.detach(), *[t.grad for t in tensors], *[t.detach() for t in tensors], torch.rand(3)]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("slots", [1, 3, None, 50])
def test_everything_is_as_in_a_plain_loop(make, slots):
    assert same(outcome(make, plain), outcome(make, loop, slots=slots, verify="all"))


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_given_schedule_is_followed(make):
    schedule = pb.Online(3) if make.__name__.startswith("while") else pb.Mixed(20, 6, tape=2)
    assert same(outcome(make, plain), outcome(make, pb.loop, schedule=schedule))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7, 40])
@pytest.mark.parametrize("slots", [1, 2, 5, None])
def test_any_length(steps, slots):
    def make():
        x, a = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        return [x, a], lambda run: run(lambda i, s, a: torch.sin(s * a + i), x, steps, a).sum()

    assert same(outcome(make, plain), outcome(make, loop, slots=slots))


def test_only_what_is_asked_for():
    x, a, b = (torch.randn(4, requires_grad=True) for _ in range(3))

    def f(run):
        return run(lambda i, s, a, b: torch.tanh(s * a + b), x, 12, a, b).sum()

    assert torch.equal(torch.autograd.grad(f(loop), a)[0], torch.autograd.grad(f(plain), a)[0])
    assert torch.equal(torch.autograd.grad(f(loop), x)[0], torch.autograd.grad(f(plain), x)[0])


@pytest.mark.parametrize("requiring", [(True, False, False), (False, True, False), (False, False, True)])
def test_any_subset_requires_gradients(requiring):
    def make():
        x, a, b = (torch.randn(4, requires_grad=one) for one in requiring)
        return [x, a, b], lambda run: run(lambda i, s, a, b: torch.tanh(s * a + b), x, 12, a, b).sum()

    assert same(outcome(make, plain), outcome(make, loop, slots=3))


def test_a_second_way_back_over_the_same_graph():
    def make():
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4))
        x = torch.randn(3, 4, requires_grad=True)
        return [x, *net.parameters(), *net.buffers()], lambda run: run(lambda i, s: s + net(s), x, 12).sum()

    def twice(run):
        torch.manual_seed(0)
        tensors, loss = make()
        value = loss(run)
        value.backward(retain_graph=True)
        value.backward()
        return [t.grad for t in tensors]

    assert same(twice(plain), twice(lambda *given: loop(*given, slots=3)))


def test_a_freed_graph_is_refused_as_usual():
    x = torch.randn(3, requires_grad=True)
    value = loop(lambda i, s: torch.sin(s), x, 10).sum()
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_hooks_see_each_gradient_once():
    w, theta = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def called(run):
        w.grad = theta.grad = None
        calls = []
        computed = theta * 2
        handles = [
            w.register_hook(lambda g: calls.append(("w", g.clone()))),
            computed.register_hook(lambda g: calls.append(("computed", g.clone())) or g * 3),
            w.register_post_accumulate_grad_hook(lambda t: calls.append(("after", t.grad.clone()))),
        ]
        run(lambda i, s, c: torch.sin(s * w + c * computed), torch.ones(4), 15, computed).sum().backward()
        for handle in handles:
            handle.remove()
        return calls, theta.grad.clone()

    expected, found = called(plain), called(lambda *given: loop(*given, slots=3))
    assert [name for name, _ in found[0]] == [name for name, _ in expected[0]]
    assert same([g for _, g in found[0]], [g for _, g in expected[0]])
    assert torch.equal(found[1], expected[1])


def test_nothing_is_kept_where_nothing_is_differentiated():
    x = torch.randn(3, requires_grad=True)
    calls = []

    def body(i, s):
        calls.append(i)
        return torch.sin(s)

    with torch.no_grad():
        assert not loop(body, x, 5).requires_grad
    with torch.inference_mode():
        assert loop(body, x, 5).is_inference()
    assert not loop(body, x.detach(), 5).requires_grad
    assert calls[:10] == [*range(5), *range(5)]


def test_inference_tensors_can_be_constants():
    with torch.inference_mode():
        c = torch.randn(3)
    x = torch.randn(3, requires_grad=True)
    run = loop(lambda i, s: torch.sin(s) + 0.1, x, 10, slots=2).sum()
    run.backward()
    assert x.grad is not None
    assert not loop(lambda i, s, c: s + c, c, 3, c).requires_grad


def test_forwards_are_those_of_the_schedule():
    calls = []

    def body(i, s, a):
        calls.append(i)
        return torch.sin(s * a)

    x, a = torch.randn(100_000, requires_grad=True), torch.tensor(1.1, requires_grad=True)
    loop(body, x, 50, a, slots=7).sum().backward()
    calls.clear()
    loop(body, x, 50, a, slots=7).sum().backward()
    assert len(calls) == pb.Mixed(50, 7, tape=2).cost.forwards, "slots without a state hold tapes"
    calls.clear()
    loop(body, x, 50, a, schedule=pb.Revolve(50, 7)).sum().backward()
    assert len(calls) == pb.Revolve(50, 7).cost.forwards


def test_small_steps_are_taped_together():
    """16 slots and blocks of steps: nearly every step runs twice, and none of them more often."""
    calls = []

    def body(i, s, a):
        calls.append(i)
        return torch.sin(s * a)

    x, a = torch.randn(100, requires_grad=True), torch.randn(100, requires_grad=True)
    loop(body, x, 1000, a, slots=16).sum().backward()
    assert len(calls) < 2000
    assert max(calls.count(i) for i in (0, 300, 999)) <= 2


def test_a_range_gives_the_index():
    x = torch.randn(3, requires_grad=True)
    ours = loop(lambda i, s: torch.sin(s) * i, x, range(1, 20, 3), slots=2).sum()
    theirs = x
    for i in range(1, 20, 3):
        theirs = torch.sin(theirs) * i
    assert torch.equal(torch.autograd.grad(ours, x)[0], torch.autograd.grad(theirs.sum(), x)[0])


def test_one_loop_inside_another():
    def make():
        x, a = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)

        def loss(run):
            def outer(i, s, a):
                return run(lambda j, u, a: torch.tanh(u * a + a), s, 4, a)

            return (run(outer, x, 20, a) ** 2).sum()

        return [x, a], loss

    expected, found = outcome(make, plain), outcome(make, loop, slots=3)
    assert same(expected[:2], found[:2])
    for one, two in zip(expected, found):
        torch.testing.assert_close(one, two, rtol=2e-6, atol=1e-6)


def test_generators_as_part_of_the_state_go_along():
    def make():
        x = torch.randn(3, requires_grad=True)

        def body(i, s):
            value, generator = s
            return value * torch.rand(3, generator=generator), generator

        return [x], lambda run: run(body, (x, torch.Generator().manual_seed(3)), 12)[0].sum()

    assert same(outcome(make, plain), outcome(make, loop, slots=2))


def test_compiled_bodies_are_replayed_with_the_same_code():
    torch._dynamo.reset()
    calls = []

    def backend(graph, inputs):
        calls.append(torch.is_grad_enabled())
        return graph.forward

    def make():
        net = torch.nn.Linear(4, 4)
        x = torch.randn(3, 4, requires_grad=True)
        step = torch.compile(lambda s: torch.tanh(net(s)) + s, backend=backend)
        return [x, *net.parameters()], lambda run: run(lambda i, s: step(s), x, 12).sum()

    expected = outcome(make, plain)
    calls.clear()
    assert same(expected, outcome(make, loop, slots=3))
    assert not calls, "nothing was compiled that a plain loop does not use"
