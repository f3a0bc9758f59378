"""Chains with adjoint code of their own, the slow and obvious adjoint, and every schedule and store there is."""

from __future__ import annotations

import time
from contextlib import contextmanager

import numpy as np

from pebbling import tree
from pebbling.chain import Hierarchical, Mixed, Periodic, Revolve, Staged, StoreAll, Tier, Uneven
from pebbling.store import HDF5, Compressed, Disk, Memory, Mock

WIDTH = 7


def start(width=WIDTH, seed=0):
    return np.random.default_rng(seed).random(width)


def advance(x, i):
    """A coupled logistic map: chaotic, so one wrong bit anywhere is a different answer."""
    return (3.8 + 0.1 * np.cos(i)) * x * (1 - x) * 0.97 + 0.03 * np.roll(x, 1)


def reverse(x, a, i):
    return (3.8 + 0.1 * np.cos(i)) * (1 - 2 * x) * 0.97 * a + 0.03 * np.roll(a, -1)


def store_everything(advance, reverse, state, indices, seed):
    """The final state and the adjoint from copies of all states: what every run must give to the last bit."""
    states = []
    state = tree.copy(state)
    for i in indices:
        states.append(tree.copy(state))
        state = advance(state, i)
    final = tree.copy(state)
    adjoint = tree.copy(seed(state) if callable(seed) else seed)
    for i in reversed(indices):
        adjoint = reverse(states.pop(), adjoint, i)
    return final, adjoint


def same(one, two):
    """Whether two trees are the same to the last bit."""
    return tree.differing(one, two) is None


def schedules_of(n, c):
    """Every kind of schedule for ``n`` steps and about ``c`` slots, by name."""
    rough = [1 + (3 * i * i) % 7 for i in range(n)]
    sizes = [1 + i % 3 for i in range(n)]
    return {
        "StoreAll": StoreAll(n),
        "Revolve": Revolve(n, c),
        "Revolve runs": Revolve(n, c, prefer="runs"),
        "Periodic": Periodic(n, c),
        "Mixed": Mixed(n, c),
        "Mixed, half tapes": Mixed(n, c, tape=0.5),
        "Mixed, large tapes": Mixed(n, c, tape=2.5),
        "Uneven slots": Uneven(rough, slots=c),
        "Uneven memory": Uneven(rough, [2.0] * n, sizes, [2 * size for size in sizes], memory=3 * c + 3),
    }


def staged_of(n, c):
    """Schedules with a slow tier, by name."""
    hierarchies = {
        "Hierarchical": Hierarchical(n, [Tier(max(1, c - 2)), Tier(2, 0.5, 0.5)]),
        "Hierarchical, unbounded": Hierarchical(n, [Tier(1), Tier(None, 2.0, 1.0)]),
        "Hierarchical, all slow": Hierarchical(n, [Tier(0), Tier(c, 1.0, 1.0)]),
    }
    if not n:
        return hierarchies
    return hierarchies | {
        "Staged": Staged(n, max(1, n // 4), c),
        "Staged, no tapes": Staged(n, max(1, n // 5), c, tape=n + 1),
    }


def written(store):
    """Wait until what is on its way to a store is there."""
    before = None
    while before != store.keys():
        before = store.keys()
        time.sleep(0.03)


@contextmanager
def every_store(kind, path):
    """A store of that kind."""
    make = {
        "Memory": Memory,
        "Disk": lambda: Disk(path / "disk"),
        "HDF5": lambda: HDF5(path / "file.h5"),
        "Compressed": lambda: Compressed(Memory()),
        "Mock": lambda: Mock(write_delay=1e-5, read_delay=1e-5),
    }[kind]
    with make() as store:
        yield store


STORES = ("Memory", "Disk", "HDF5", "Compressed", "Mock")
