"""Loops and chains on a GPU: gradients to the bit, budgets that bound the allocator's peak, offload that overlaps."""

from __future__ import annotations

import pytest
import torch
from test_torch_loop import outcome
from torch import nn
from torch_bodies import plain

import pebbling as pb
from helpers import same
from pebbling.store import Disk, Host
from pebbling.torch import chain, loop

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _exact():
    """Same bits for the same sums."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before
    torch.cuda.empty_cache()


def matrices():
    w = (torch.randn(512, 512, device="cuda") / 23).requires_grad_()
    x = torch.randn(1024, 512, device="cuda", requires_grad=True)
    return [x, w], lambda run: run(lambda i, s, w: torch.tanh(s @ w), x, 80, w).sum()


def network():
    net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 256), nn.LayerNorm(256))
    net = net.cuda()
    x = torch.randn(2048, 256, device="cuda")
    return list(net.parameters()), lambda run: (run(lambda i, s: s + net(s), x, 40) ** 2).mean()


def pair():
    x, v, k = (torch.randn(1_000_000, device="cuda", requires_grad=True) for _ in range(3))

    def body(i, s, k):
        x, v = s
        v = v - 0.1 * torch.sin(k * x) * x
        return x + 0.1 * v, v

    return [x, v, k], lambda run: run(body, (x, v), 100, k)[0].sum()


PROBLEMS = [matrices, network, pair]


def peak(make, run, **budget):
    torch.manual_seed(0)
    tensors, loss = make()
    loss(lambda *given: run(*given, **budget)).backward()  # libraries keep workspaces from their first use on
    for tensor in tensors:
        tensor.grad = None
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss(lambda *given: run(*given, **budget)).backward()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - start


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("slots", [2, 8, None])
def test_everything_is_as_in_a_plain_loop(make, slots):
    assert same(outcome(make, plain), outcome(make, loop, slots=slots, verify="all"))


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
def test_ten_budgets_bound_the_allocators_peak(make):
    everything = peak(make, plain)
    with pytest.raises(pb.BudgetError) as refused:
        peak(make, loop, memory=1000)
    least = refused.value.minimum
    assert least < 0.5 * everything
    for budget in [int(least + (1.2 * everything - least) * i / 9) for i in range(10)]:
        assert peak(make, loop, memory=budget) <= budget


def test_cuda_dropout_and_the_generator_afterwards():
    def make():
        drop = nn.Dropout(0.4)
        x = torch.randn(1000, device="cuda", requires_grad=True)
        return [x], lambda run: run(lambda i, s: drop(torch.sin(s)) + s, x, 30).sum()

    def all_of(run, **budget):
        found = outcome(make, run, **budget)
        return [*found, torch.rand(3, device="cuda")]

    assert same(all_of(plain), all_of(loop, slots=4))


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
def test_snapshots_in_host_memory(make):
    with Host() as store:
        assert same(outcome(make, plain), outcome(make, loop, slots=8, store=store))
        assert store.keys() == []


@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
def test_bytes_beside_host_memory(make):
    everything = peak(make, plain)
    for share in (0.35, 0.6):
        with Host() as store:
            assert same(outcome(make, plain), outcome(make, loop, memory=int(share * everything), store=store))
            assert peak(make, loop, memory=int(share * everything), store=store) <= share * everything


def test_disk_behind_host(tmp_path):
    with Host(limit="8MB", behind=Disk(tmp_path)) as store:
        assert same(outcome(matrices, plain), outcome(matrices, loop, slots=20, store=store))
        assert store.keys() == []


def test_copies_out_overlap_the_compute():
    """The program goes on while a copy is under way, and what comes back is what was given."""
    with Host() as store:
        x = torch.randn(16 << 20, device="cuda")
        double = torch.empty_like(x)  # making room on the device waits for what is under way
        store.put(0, x)
        store.flush()
        store.drop(0)
        started = torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)
        y = x.clone()
        started.record()
        store.put(1, x)
        torch.mul(x, 2, out=double)
        ended.record()
        ended.synchronize()
        seconds = started.elapsed_time(ended) / 1e3
        assert torch.equal(store.get(1), y)
        assert seconds < x.numel() * 4 / 60e9, "the compute did not wait for 64 MB to cross the link"


def test_mixed_precision():
    def make():
        net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)).cuda()
        x = torch.randn(256, 64, device="cuda")

        def loss(run):
            with torch.autocast("cuda", torch.bfloat16):
                y = run(lambda i, s: (s + net(s)).float(), x, 20)
            return (y**2).mean()

        return list(net.parameters()), loss

    assert same(outcome(make, plain), outcome(make, loop, slots=4))


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_chains_bound_the_allocators_peak(share):
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.1) for _ in range(12)]
    net = nn.Sequential(*layers).cuda()
    x = torch.randn(16, 256, 256, device="cuda")

    def run(model):
        net.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        torch.cuda.synchronize()
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss = (model(x) ** 2).mean()
        loss.backward()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - start, [loss.detach(), *[p.grad for p in net.parameters()]]

    run(net)
    everything, expected = run(net)
    expected = [one.clone() for one in expected]
    small = chain(net, memory=int(share * everything))
    run(small)
    measured, found = run(small)
    assert measured <= share * everything
    assert same(expected, found)
