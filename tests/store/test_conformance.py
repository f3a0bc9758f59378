"""Every store keeps the contract, and a store that breaks any one rule of it is caught."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest
import torch
from zarr.storage import MemoryStore as ZarrMemory

from pebbling.errors import StoreError
from pebbling.store import HDF5, Background, Compressed, Disk, Memory, Mock, Remote, Store, Zarr, conformance

RULES = 11

STORES = {
    "Memory": lambda path: Memory(),
    "Disk": lambda path: Disk(path / "disk"),
    "Disk, durable": lambda path: Disk(path / "durable", durable=True),
    "HDF5": lambda path: HDF5(path / "file.h5"),
    "Remote in memory": lambda path: Remote("memory://pebbling-tests"),
    "Remote on disk": lambda path: Remote(f"file://{path}/remote"),
    "Zarr": lambda path: Zarr(ZarrMemory()),
    "Mock": lambda path: Mock(),
    "Mock of Disk": lambda path: Mock(Disk(path / "mock")),
    "lossy": lambda path: Compressed(Memory(), lossy_bits=8),
    "Compressed Disk": lambda path: Compressed(Disk(path / "compressed"), "zstd", level=1),
    "Background of Memory": lambda path: Background(Memory()),
    "Background of Disk": lambda path: Background(Disk(path / "background"), pending=1),
    "Background of HDF5": lambda path: Background(HDF5(path / "background.h5")),
    "Background of lossy": lambda path: Background(Compressed(Disk(path / "both"), lossy_bits=4)),
    **{
        f"Compressed with {codec}": lambda path, codec=codec: Compressed(Memory(), codec)
        for codec in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
    },
}


@pytest.mark.parametrize("name", STORES)
def test_our_stores_keep_the_contract(name, tmp_path):
    assert {"torch", "jax"} <= sys.modules.keys()
    assert (torch.__name__, jax.__name__) == ("torch", "jax")
    rules = conformance(lambda: STORES[name](tmp_path))
    assert len(set(rules)) == RULES
    assert list(tmp_path.iterdir()) == []


class ChangesBits(Memory):
    """What comes out is what went in"""

    def get(self, key):
        tree = super().get(key)
        return tree.astype("f4").astype("f8") if isinstance(tree, np.ndarray) and tree.dtype == "f8" else tree


class ForgetsOrder(Memory):
    """What comes out is what went in"""

    def put(self, key, tree):
        super().put(key, np.ascontiguousarray(tree) if isinstance(tree, np.ndarray) and tree.ndim else tree)


class SharesGenerator(Memory):
    """A random generator comes back in the state in which it was put"""

    def get(self, key):
        return self._held.find(key)[0] if key == "rng" else super().get(key)


class KeepsTheObject(Memory):
    """What is put may be changed afterwards"""

    def put(self, key, tree):
        super().put(key, tree)
        if isinstance(tree, dict) and "u" in tree:
            self._held.entries[key] = (tree, self._held.entries[key][1])


class GivesTheObject(Memory):
    """What was got may be changed"""

    def get(self, key):
        tree = self._held.find(key)[0]
        return tree if isinstance(tree, dict) and "u" in tree else super().get(key)


class SeparatesObjects(Memory):
    """Two leaves that are one object come back as one object"""

    def get(self, key):
        tree = super().get(key)
        return [tree[0], {"again": tree[0].copy()}, *tree[2:]] if isinstance(tree, list) and len(tree) == 4 else tree


class KeysAsText(Memory):
    """Keys are texts and ints, and 1 is not "1\""""

    def put(self, key, tree):
        super().put(str(key) if key == 1 else key, tree)

    def get(self, key):
        return super().get(str(key) if key == 1 else key)

    def take(self, key):
        return super().take(str(key) if key == 1 else key)


class NeverReplaces(Memory):
    """A put under a key in use replaces the snapshot"""

    def put(self, key, tree):
        if key not in self._held.entries or key != "u":
            super().put(key, tree)


class DropsAll(Memory):
    """A dropped key is gone, the others stay"""

    def drop(self, key):
        self._held.find(key)
        for held in self.keys():
            self.take(held)


class DropsNothing(Memory):
    """A dropped key is gone, the others stay"""

    def drop(self, key):
        self._held.find(key)


class RaisesKeyError(Memory):
    """An unknown key is a StoreError, and the store goes on"""

    def get(self, key):
        return super().get(key) if key in self._held.entries else {}[key]


class CountsForever(Memory):
    """``nbytes`` follows what is held, and room that was freed is used again"""

    def take(self, key):
        size = self._held.find(key)[1]
        tree = super().take(key)
        self._nbytes += size // 2
        return tree


class StaysOpen(Memory):
    """A closed store refuses, and may be closed again"""

    def close(self):
        for key in self.keys():
            self.take(key)


class ClosesOnce(Memory):
    """A closed store refuses, and may be closed again"""

    def close(self):
        if self._held.closed:
            raise StoreError("closed already")
        super().close()


BROKEN = [
    ChangesBits, ForgetsOrder, SharesGenerator, KeepsTheObject, GivesTheObject, SeparatesObjects, KeysAsText,
    NeverReplaces, DropsAll, DropsNothing, RaisesKeyError, CountsForever, StaysOpen,
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_store_is_caught(broken):
    with pytest.raises(AssertionError) as caught:
        conformance(broken)
    assert f"{broken.__name__} breaks the rule {broken.__doc__!r}" in str(caught.value)


def test_a_store_that_cannot_be_closed_twice_is_caught():
    with pytest.raises((AssertionError, StoreError), match="closed already"):
        conformance(ClosesOnce)


def test_every_rule_has_a_store_that_breaks_it():
    assert len({broken.__doc__ for broken in BROKEN}) == RULES


def test_the_contract_is_six_methods():
    assert Store.__abstractmethods__ == {"put", "get", "drop", "keys", "nbytes", "close"}
