"""The HDF5 store: readable by others, checked, and never in the way of a file that was there."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

from pebbling import tree
from pebbling.errors import CorruptSnapshot, StoreError, StoreFull
from pebbling.store import HDF5, files


def test_other_programs_can_read_the_numbers(tmp_path):
    state = {"u": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.arange(6).reshape(2, 3))}
    with HDF5(tmp_path / "f.h5", keep=True) as store:
        store.put("first", state)
    with h5py.File(tmp_path / "f.h5") as file:
        (group,) = file.values()
        assert group["0"][:].tolist() == state["u"].tolist()
        assert group["0"].dtype == np.float64
        assert group["1"][:].tolist() == state["f"].T.tolist()


def test_an_existing_file_is_never_touched(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["mine"] = [1, 2]
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"f\.h5 exists: remove it, or open it with keep=True"):
        HDF5(path)
    with pytest.raises(StoreError, match="was not written by a store"):
        HDF5(path, keep=True)
    assert path.read_bytes() == before
    (tmp_path / "text").write_text("not hdf5")
    with pytest.raises(StoreError, match="can't open"):
        HDF5(tmp_path / "text", keep=True)
    with pytest.raises(StoreError, match="can't open"):
        HDF5(tmp_path / "no" / "such" / "directory.h5")
    assert sorted(os.listdir(tmp_path)) == ["f.h5", "text"]


def test_snapshots_are_found_again_if_they_are_to_be_kept(tmp_path):
    states = {0: np.arange(5), "0": {"rng": np.random.default_rng(1)}, "a/b": [None, 2.5]}
    with HDF5(tmp_path / "f.h5", keep=True) as store:
        for key, state in states.items():
            store.put(key, state)
        size = store.nbytes
    with HDF5(tmp_path / "f.h5", keep=True) as store:
        assert set(store.keys()) == set(states)
        assert store.nbytes == size
        for key, state in states.items():
            assert tree.differing(store.get(key), state) is None
        store.keep = False
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["0", "structure"])
def test_changed_numbers_are_found(tmp_path, what):
    with HDF5(tmp_path / "f.h5") as store:
        store.put("key", np.arange(1000, dtype=np.uint8))
        dataset = store._file["%22key%22"][what]
        dataset[3] = dataset[3] ^ 1
        with pytest.raises(CorruptSnapshot, match=r"snapshot 'key' in .*f\.h5"):
            store.get("key")


def test_missing_numbers_are_found(tmp_path):
    with HDF5(tmp_path / "f.h5") as store:
        store.put("key", np.arange(1000))
        del store._file["%22key%22"]["0"]
        with pytest.raises(CorruptSnapshot, match="can't be read"):
            store.get("key")


def test_a_put_that_fails_leaves_the_old_snapshot(tmp_path, monkeypatch):
    with HDF5(tmp_path / "f.h5") as store:
        store.put("key", np.arange(3))
        with pytest.raises(StoreError, match=r"state\[0\] is a builtins.function, which is not data"):
            store.put("key", [lambda: 0])
        monkeypatch.setattr(store, "_write", lambda *arguments: (_ for _ in ()).throw(OSError("no luck")))
        with pytest.raises(StoreError, match=r"writing snapshot 'key' of .*no luck"):
            store.put("key", np.arange(4))
        monkeypatch.undo()
        assert store.get("key").tolist() == [0, 1, 2]
        store.put("key", np.arange(4))
        assert store.get("key").tolist() == [0, 1, 2, 3]


def test_a_full_disk_is_told_before(tmp_path, monkeypatch):
    with HDF5(tmp_path / "f.h5") as store:
        monkeypatch.setattr(files, "free_space", lambda path: 10**6)
        store.put(0, np.zeros(1000))
        with pytest.raises(StoreFull, match="needed, 977 KiB free"):
            store.put(1, np.zeros(10**6))
        with pytest.raises(StoreFull, match="needed"):
            store.reserve(100, 10**5)
        store.reserve(2, 10**5)
        assert store.keys() == [0]
