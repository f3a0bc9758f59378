"""Chains of modules: gradients to the bit, peaks within the budget, predictions that come true."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pebbling as pb
from pebbling.torch import Tracked, chain
from pebbling.torch.chains.costs import Costs, Module
from pebbling.torch.chains.fitting import ByteMachine, fit


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.two(torch.relu(self.norm(self.one(x))))


class Pair(nn.Module):
    """Takes one tensor or two and a number, and gives two and a number."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, given):
        x, y, count = given if isinstance(given, tuple) else (given, given * 2, 0)
        return torch.tanh(self.linear(x)) + y, x * 0.5, count + 1


def perceptron():
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(24)]), torch.randn(256, 32)


def single_layers():
    layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*layers), torch.randn(256, 32, requires_grad=True)


def residual():
    stages = [nn.Conv2d(3, 8, 3, padding=1), *[Residual(8) for _ in range(6)], nn.Conv2d(8, 16, 3, 2, 1)]
    return nn.Sequential(*stages, *[Residual(16) for _ in range(6)]), torch.randn(4, 3, 24, 24)


def transformer():
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1) for _ in range(8)]
    return nn.Sequential(*layers), torch.randn(4, 48, 32)


CHAINS = [perceptron, single_layers, residual, transformer]


def outcome(net, run, x):
    torch.manual_seed(1)
    for buffer in net.buffers():
        buffer.zero_()
    net.zero_grad()
    loss = (run(x) ** 2).mean()
    loss.backward()
    grads = [p.grad for p in net.parameters()]
    return [loss.detach(), *grads, *[b.clone() for b in net.buffers()], torch.rand(2)]


def peak(net, run, x):
    net.zero_grad()
    with Tracked() as memory:
        (run(x) ** 2).mean().backward()
    return memory.peak


@pytest.mark.parametrize("make", CHAINS, ids=lambda make: make.__name__)
def test_gradients_peaks_and_predictions(make):
    torch.manual_seed(0)
    net, x = make()
    expected = outcome(net, net, x)
    everything = peak(net, net, x)
    for share in (0.45, 0.7, 1.2):
        ours = chain(net, memory=int(share * everything))
        found = outcome(net, ours, x)
        assert all(map(torch.equal, expected, found))
        measured = peak(net, ours, x)
        assert measured <= share * everything
        assert ours.plan.peak == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize("slots", [1, 3, None])
def test_slots(slots):
    net, x = perceptron()
    assert all(map(torch.equal, outcome(net, net, x), outcome(net, chain(net, slots=slots), x)))


def test_states_of_changing_structure():
    torch.manual_seed(0)
    layers = [Pair() for _ in range(9)]
    net = nn.Sequential(*layers)
    x = torch.randn(5, 16, requires_grad=True)

    def gradients(run):
        a, b, count = run(x)
        assert count == 9
        return torch.autograd.grad((a * b).sum(), [x, *net.parameters()])

    assert all(map(torch.equal, gradients(net), gradients(chain(layers, slots=2))))


def test_shared_modules_sum_their_gradients_in_order():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    net = nn.Sequential(*[layer] * 10)
    x = torch.randn(5, 16)
    assert all(map(torch.equal, outcome(net, net, x), outcome(net, chain([layer] * 10, slots=2), x)))


def test_names_and_parameters_stay():
    net = nn.Sequential()
    net.add_module("first", nn.Linear(4, 4))
    net.add_module("last", nn.Linear(4, 2))
    ours = chain(net, slots=1)
    assert list(ours.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(ours.parameters(), net.parameters()))
    assert len(ours) == 2
    assert ours[1] is net.last
    ours.load_state_dict(net.state_dict())


def test_a_schedule_of_your_own():
    net, x = perceptron()
    ours = chain(net, schedule=pb.Revolve(24, 4))
    assert all(map(torch.equal, outcome(net, net, x), outcome(net, ours, x)))
    assert ours.plan.schedule == pb.Revolve(24, 4)


def test_modules_are_measured_once():
    calls = []

    class Counting(nn.Linear):
        def forward(self, x):
            calls.append(1)
            return torch.tanh(super().forward(x))

    net = nn.Sequential(*[Counting(8, 8) for _ in range(10)])
    ours = chain(net, slots=10)
    ours(torch.randn(3, 8)).sum().backward()
    calls.clear()
    ours(torch.randn(3, 8)).sum().backward()
    assert len(calls) <= 20
    with torch.no_grad():
        calls.clear()
        ours(torch.randn(3, 8))
    assert len(calls) == 10


def test_refusals():
    net, x = perceptron()
    with pytest.raises(pb.BudgetError, match="smallest") as refused:
        chain(net, memory="10KB")(x)
    budget = refused.value.minimum
    assert peak(net, chain(net, memory=budget), x) <= budget
    with pytest.raises(ValueError, match="at most one"):
        chain(net, memory="1MB", slots=3)
    with pytest.raises(ValueError, match="9 steps"):
        chain(net, schedule=pb.Revolve(9, 3))
    with pytest.raises(ValueError, match="Online"):
        chain(net, schedule=pb.Online(3))
    with pytest.raises(TypeError, match="number 0 is a"):
        chain([torch.tanh], slots=1)


def test_a_large_module_early_leaves_the_rest_to_small_ones():
    """The true peak is what counts: a plan may keep much where the modules that run need little."""
    module = {"cotangents": 1, "saves_input": True, "saves_output": False, "gradients": 0}
    module |= {"extra_forward": 0, "extra_back": 1}
    large = Module(1.0, 2.0, 100, inside=100, extra_turn=300, **module)
    small = [Module(1.0, 2.0, 10, inside=20, extra_turn=30, **module) for _ in range(20)]
    costs = Costs(0, (large, *small))
    found = fit(costs, 560, 0)
    assert found.peak <= 560
    assert found.time <= 1.2 * 21 * 3.0
    machine = ByteMachine(costs, 0)
    machine.run(iter(found.schedule))
    assert (machine.peak, machine.time) == (found.peak, found.time)


class Counting(nn.Module):
    """Depends on how often it has run."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return torch.tanh(self.line(x) * (1 + 0.1 * self.count))


class Nudging(nn.Module):
    """Changes the buffer of a module that it does not list among its own."""

    def __init__(self, other):
        super().__init__()
        self.other = [other]

    def forward(self, x):
        self.other[0].count += 0.5
        return x * 1.5


def counting_chain(kind):
    modules = [Counting() for _ in range(7)]
    if kind == "twice":
        modules[5] = modules[1]
    if kind == "by another":
        modules[1] = Nudging(modules[4])
    return nn.Sequential(*modules)


@pytest.mark.parametrize("kind", ["own", "twice", "by another"])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_replays_see_the_buffers_of_their_first_run(kind, slots):
    torch.manual_seed(0)
    net = counting_chain(kind)
    x, found = torch.randn(3, 4), []
    for run in (net, chain(net, slots=slots)):
        for buffer in net.buffers():
            buffer.zero_()
        for _ in range(2):
            net.zero_grad()
            run(x).sum().backward()
        found.append([*[p.grad.clone() for p in net.parameters()], *[b.clone() for b in net.buffers()]])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
