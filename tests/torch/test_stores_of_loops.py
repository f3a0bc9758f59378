"""What pb.adjoint does with a store, pb.loop, pebbling.torch.loop and pb.Tape do too."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch

import pebbling as pb
from helpers import same
from pebbling.errors import CorruptSnapshot, StoreFull
from pebbling.store import Disk, Memory
from pebbling.torch import loop

X = np.linspace(0.1, 1.0, 50)


def by_loop(**said: Any) -> Any:
    return pb.grad(lambda u: np.sum(pb.loop(lambda i, u: u + 0.1 * np.sin(u), u, 40, **said)))(X)


def by_torch(**said: Any) -> Any:
    u = torch.tensor(X, requires_grad=True)
    loop(lambda i, u: u + 0.1 * torch.sin(u), u, 40, **said).sum().backward()
    return u.grad


def by_tape(**said: Any) -> Any:
    step = pb.op.from_numpy(lambda u: u + 0.1 * np.sin(u))
    total = pb.op.from_numpy(lambda u: np.sum(u))
    with pb.Tape(**said) as tape:
        u = leaf = tape.leaf(X)
        for _ in tape.loop(range(40)):
            u = step(u)
        return tape.pullback(total(u))[leaf]


FRONTS = [by_loop, by_torch, by_tape]
TIERS = pb.Hierarchical(40, [pb.Tier(2), pb.Tier(3, write=2, read=1)])


class Watched(Memory):
    """A store that knows which threads have written, and loses what it is told to lose, once."""

    def __init__(self, lose: int = 0) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.lose = lose
        self.lost = 0

    def put(self, key: Any, tree: Any) -> None:
        self.threads.add(threading.get_ident())
        super().put(key, tree)

    def get(self, key: Any) -> Any:
        if self.lost < self.lose:
            self.lost += 1
            raise CorruptSnapshot(f"{key} is damaged")
        return super().get(key)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    "said", [{"slots": 5}, {"schedule": TIERS}, {"memory": "1MB"}], ids=["slots", "tiers", "bytes"]
)
def test_the_gradient_is_the_same_and_the_store_is_left_empty(front: Any, said: dict[str, Any], tmp_path: Any) -> None:
    with Disk(tmp_path) as store:
        assert same(front(store=store, **said), front())
        assert store.keys() == []


@pytest.mark.parametrize("front", FRONTS)
def test_snapshots_are_written_in_the_background_and_damaged_ones_computed_again(front: Any) -> None:
    store = Watched(lose=3)
    assert same(front(slots=5, store=store), front())
    assert store.lost == 3
    assert store.threads
    assert threading.get_ident() not in store.threads
    assert store.keys() == []


@pytest.mark.parametrize("front", FRONTS)
def test_a_store_that_an_adjoint_run_has_is_refused(front: Any) -> None:
    store = Memory()
    seen: list[str] = []

    def reverse(x: Any, a: Any, i: int) -> Any:
        if not seen:
            with pytest.raises(ValueError, match="in use by another run") as refused:
                front(slots=3, store=store)
            seen.append(str(refused.value))
        return a

    pb.adjoint(lambda x, i: x + 1, reverse, X, 6, X, slots=3, store=store)
    assert len(seen) == 1
    assert same(front(slots=3, store=store), front()), "and is free again afterwards"


@pytest.mark.parametrize("front", FRONTS)
def test_room_in_the_store_is_made_sure_of_before_the_first_snapshot(front: Any) -> None:
    class Small(Memory):
        def reserve(self, count: int, nbytes: int) -> None:
            if count * nbytes > 1000:
                raise StoreFull(f"no room for {count} snapshots of {nbytes} bytes")

    with Small() as store:
        with pytest.raises(StoreFull, match="no room for 5 snapshots"):
            front(slots=5, store=store)
        assert store.keys() == []


def test_loops_of_one_program_share_a_store() -> None:
    with Memory() as store:

        def twice(u: Any) -> Any:
            for _ in range(2):
                u = pb.loop(lambda i, u: u + 0.1 * np.sin(u), u, 20, slots=3, store=store)
            return np.sum(u)

        assert same(pb.grad(twice)(X), by_loop())
        assert store.keys() == []


def test_values_with_tangents_are_refused_by_a_loop_with_a_store() -> None:
    with Memory() as store, pytest.raises(pb.PebblingError, match="leave out store="):
        pb.hvp(lambda u: np.sum(pb.loop(lambda i, u: np.sin(u), u, 20, slots=3, store=store)))(X, X)


def test_a_store_may_be_a_path(tmp_path: Any) -> None:
    for number, front in enumerate(FRONTS):
        assert same(front(slots=3, store=tmp_path / str(number)), front())
    assert same(by_loop(budget=pb.Budget(slots=3, store=tmp_path / "b")), by_loop())


def test_a_loop_that_is_collected_amid_work_on_its_store_does_not_stop_the_program() -> None:
    """Garbage is collected in whatever thread allocates, with whatever locks it has."""
    collected: list[bool] = []

    class Collecting(Memory):
        def get(self, key: Any) -> Any:
            if not collected:
                collected.append(gc.collect() > 0)
            return super().get(key)

    with Collecting() as store:
        u = torch.tensor(X, requires_grad=True)
        kept: list[Any] = [loop(lambda i, u: torch.sin(u), u, 40, slots=5, store=store)]
        kept.append(kept)  # a circle: only the collector frees it
        del kept
        finished: list[Any] = []
        thread = threading.Thread(target=lambda: finished.append(by_torch(slots=5, store=store)), daemon=True)
        thread.start()
        thread.join(120)
        assert finished, "it waits for itself"
        assert any(collected)
