"""The public names, and that nothing is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys
import timeit

import numpy as np
import pytest

from pebbling import store
from pebbling.store import HDF5, Compressed, Memory, extra


def test_public_names():
    assert sorted(store.__all__) == [
        "Background", "Compressed", "Disk", "HDF5", "Host", "Key", "Memory", "Mock", "Orphan", "Remote", "Store",
        "Zarr", "clean", "conformance", "orphans", "register_codec",
    ]  # fmt: skip
    assert all(hasattr(store, name) for name in store.__all__)


def test_nothing_else_is_imported():
    code = "import sys, pebbling.store; pebbling.store.Memory().put(0, 1); \
print([m for m in ('torch', 'jax', 'h5py', 'blosc2', 'zarr', 'fsspec') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("make", "module", "line"),
    [
        (lambda path: HDF5(path / "f.h5"), "h5py", r"HDF5 needs h5py: pip install 'pebbling\[hdf5\]'"),
        (lambda path: Compressed(Memory()), "blosc2", r"Compressed needs blosc2: pip install 'pebbling\[blosc\]'"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, make, module, line):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=line):
        make(tmp_path)


def test_a_library_that_breaks_while_it_loads_is_not_called_missing(monkeypatch):
    def broken(name):
        raise ValueError("broken")

    monkeypatch.setattr(extra, "import_module", broken)
    with pytest.raises(ValueError, match="broken"):
        extra.require("h5py", "hdf5", "HDF5")


def test_memory_takes_a_few_microseconds():
    memory, array = Memory(), np.zeros(10)
    assert min(timeit.repeat(lambda: memory.put(0, array), number=1000, repeat=20)) / 1000 < 10e-6
    assert min(timeit.repeat(lambda: memory.get(0), number=1000, repeat=20)) / 1000 < 10e-6


def test_memory_gives_the_last_one_without_a_copy():
    memory = Memory()
    memory.put(0, {"u": np.arange(3)})
    held = memory._held.entries[0][0]
    assert memory.take(0) is held
    assert memory.nbytes == 0


@pytest.mark.parametrize("key", [1.5, None, (1,), True, b"a", np.int64(3)])
def test_keys_are_texts_or_ints(key):
    with pytest.raises(ValueError, match="a key is a text or an int"):
        Memory().put(key, 1)
