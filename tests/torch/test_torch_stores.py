"""Loops with a store beside the memory: snapshots and tapes go there and come back as they were."""

from __future__ import annotations

import pytest
import torch
from test_torch_loop import outcome
from torch_bodies import MODELS, plain

import pebbling as pb
from helpers import same
from pebbling.store import Disk, Host, Memory
from pebbling.torch import Tracked, loop

KNOWN = [make for make in MODELS if not make.__name__.startswith("while")]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_slots_in_host_memory(make):
    with Host() as store:
        assert same(outcome(make, plain), outcome(make, loop, slots=3, store=store))
        assert store.keys() == []


@pytest.mark.parametrize("make", KNOWN, ids=lambda make: make.__name__)
def test_a_schedule_with_two_tiers(make, tmp_path):
    schedule = pb.Hierarchical(20, [pb.Tier(2), pb.Tier(3, write=2, read=1)])
    with Disk(tmp_path) as store:
        assert same(outcome(make, plain), outcome(make, loop, schedule=schedule, store=store))
        assert store.keys() == []


def problem():
    w = torch.randn(64, 64, requires_grad=True)
    x = torch.randn(400, 64, requires_grad=True)
    return [x, w], lambda run: run(lambda i, s, w: torch.tanh(s @ w), x, 60, w).sum()


@pytest.mark.parametrize("kind", [Host, Memory])
@pytest.mark.parametrize("budget", ["1.2MB", "2MB", "20MB"])
def test_bytes_beside_a_store(kind, budget):
    with kind() as store:
        assert same(outcome(problem, plain), outcome(problem, loop, memory=budget, store=store))
        assert store.keys() == []


def test_tapes_in_host_memory_take_no_replay(monkeypatch):
    calls = []
    w = torch.randn(64, 64, requires_grad=True)
    x = torch.randn(400, 64, requires_grad=True)

    def body(i, s, w):
        calls.append(i)
        return torch.tanh(s @ w)

    expected = torch.autograd.grad(plain(body, x, 60, w).sum(), [x, w])
    # The choice goes by measured times; a link without cost makes it.
    monkeypatch.setattr("pebbling.torch.loops.slow_tier._transfer", lambda store, state: (1e-9, 1e-9))
    with Host() as store:
        loop(body, x, 60, w, memory="2MB", store=store).sum().backward()
        calls.clear()
        value = loop(body, x, 60, w, memory="2MB", store=store).sum()
        assert len(store.keys()) == 60, "every state crosses once"
        found = torch.autograd.grad(value, [x, w])
        assert store.keys() == []
        assert calls.count(30) == 1
        assert all(map(torch.equal, expected, found))
        del value
        loop(body, x, 60, w, memory="2MB", store=store)
        assert store.keys() == [], "a loop that nobody differentiates leaves nothing behind"


def test_tapes_in_host_memory_leave_the_memory(monkeypatch):
    class Elsewhere(Host):
        """Host memory that is not counted, as it is not beside a GPU."""

        def put(self, key, tree):
            super().put(key, tree.numpy().copy())

        def get(self, key):
            return torch.from_numpy(super().get(key))

    monkeypatch.setattr("pebbling.torch.loops.slow_tier._transfer", lambda store, state: (1e-9, 1e-9))
    _, loss = problem()
    with Elsewhere() as store:
        loss(lambda *given: loop(*given, memory="2MB", store=store)).backward()
        with Tracked() as memory:
            loss(lambda *given: loop(*given, memory="2MB", store=store)).backward()
        assert memory.peak <= 2e6


def test_too_little_beside_a_store_is_refused():
    _, loss = problem()
    with Host() as store, pytest.raises(pb.BudgetError) as refused:
        loss(lambda *given: loop(*given, memory="100KB", store=store))
    with Host() as store:
        loss(lambda *given: loop(*given, memory=refused.value.minimum, store=store)).backward()


def test_two_tiers_need_a_store():
    with pytest.raises(ValueError, match="2 tiers"):
        loop(
            lambda i, s: torch.sin(s),
            torch.randn(3, requires_grad=True),
            20,
            schedule=pb.Hierarchical(20, [pb.Tier(2), pb.Tier(3, write=2, read=1)]),
        )


def test_disk_behind_host(tmp_path):
    def make():
        x = torch.randn(2000, requires_grad=True)
        return [x], lambda run: run(lambda i, s: torch.sin(s) * 1.1, x, 40).sum()

    with Host(limit=20_000, behind=Disk(tmp_path)) as store:
        assert same(outcome(make, plain), outcome(make, loop, slots=12, store=store))
        assert store.keys() == []


def test_snapshots_in_a_store_leave_the_memory():
    x = torch.randn(50_000, requires_grad=True)

    def peak(**options):
        with Tracked() as memory:
            loop(lambda i, s: torch.sin(s) * 1.1, x, 40, **options).sum().backward()
        return memory.peak

    class Elsewhere(Memory):
        def put(self, key, tree):
            super().put(key, [leaf.numpy().copy() for leaf in tree])

        def get(self, key):
            return [torch.from_numpy(leaf) for leaf in super().get(key)]

    with Elsewhere() as store:
        assert peak(slots=10, store=store) < peak(slots=10) - 3 * 200_000
