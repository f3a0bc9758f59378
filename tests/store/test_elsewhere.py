"""Stores in places of other packages, codecs of others, and what goes wrong there."""

from __future__ import annotations

import zlib

import fsspec
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import pebbling as pb
from pebbling.store import Compressed, Memory, Remote, Zarr, register_codec

STEPS = 40


@pytest.fixture(autouse=True)
def codecs_of_each_test(monkeypatch):
    monkeypatch.setattr("pebbling.store.codecs._REGISTERED_CODECS", {})


def run(store, **options):
    return pb.adjoint(
        lambda u, i: u + 0.01 * np.sin(u),
        lambda u, a, i: a * (1 + 0.01 * np.cos(u)),
        np.linspace(0, 3, 500),
        STEPS,
        np.ones(500),
        slots=5,
        store=store,
        **options,
    )


WANT = run(None)


@pytest.mark.parametrize("make", [lambda: Remote("memory://runs"), lambda: Zarr(MemoryStore())], ids=["Remote", "Zarr"])
def test_a_run_keeps_its_snapshots_there(make):
    with make() as store:
        found = run(store)
        assert not store.keys()
    assert found.adjoint.tobytes() == WANT.adjoint.tobytes()
    assert sum(found.report.written.values()) > 0


def test_a_url_is_enough():
    found = run("memory://runs-by-url")
    assert found.adjoint.tobytes() == WANT.adjoint.tobytes()
    assert found.report.written["remote"] > 0
    assert not fsspec.filesystem("memory").exists("/runs-by-url")


def test_damage_is_found_and_computed_again():
    system = fsspec.filesystem("memory")
    damaged = []

    def back(u, a, i):
        if i == 20:
            for path in system.find("/damaged")[:3]:
                content = bytearray(system.cat_file(path))
                content[77] ^= 1
                system.pipe_file(path, bytes(content))
                damaged.append(path)
        return a * (1 + 0.01 * np.cos(u))

    with Remote("memory://damaged") as store:
        found = pb.adjoint(
            lambda u, i: u + 0.01 * np.sin(u), back, np.linspace(0, 3, 500), STEPS, np.ones(500), slots=5, store=store
        )
    assert damaged
    assert found.report.recovered >= 1
    assert found.adjoint.tobytes() == WANT.adjoint.tobytes()


@pytest.mark.parametrize("change", ["short", "long", "gone", "flipped"])
def test_objects_that_are_not_what_was_written_are_refused(change):
    system = fsspec.filesystem("memory")
    with Remote("memory://objects") as store:
        store.put("a", np.arange(100.0))
        (path,) = system.find("/objects")
        content = system.cat_file(path)
        if change == "gone":
            system.rm_file(path)
        else:
            flipped = content[:9] + bytes([content[9] ^ 1]) + content[10:]
            system.pipe_file(path, {"short": content[:-1], "long": content + b"x", "flipped": flipped}[change])
        with pytest.raises(pb.CorruptSnapshot):
            store.get("a")


def test_closing_leaves_what_others_put_there():
    system = fsspec.filesystem("memory")
    system.pipe_file("/shared/mine.txt", b"mine")
    with Remote("memory://shared") as store:
        store.put("a", np.ones(3))
    assert system.cat_file("/shared/mine.txt") == b"mine"
    assert system.find("/shared") == ["/shared/mine.txt"]
    place = MemoryStore()
    zarr.open_group(place, mode="a").create_array("field", data=np.ones(2))
    with Zarr(place) as other:
        other.put("a", np.ones(3))
    assert list(zarr.open_group(place, mode="r")) == ["field"]


def test_what_the_other_package_raises_is_a_store_error():
    with pytest.raises(pb.StoreError, match="nosuchprotocol"):
        Remote("nosuchprotocol://x")
    with pytest.raises(pb.StoreError, match="can't open"):
        Zarr("/proc/nowhere/at/all")


def test_zeros_of_both_signs_come_back_from_zarr():
    with Zarr(MemoryStore()) as store:
        store.put("a", -np.zeros(10))
        assert np.signbit(store.get("a")).all()


def test_a_codec_of_somebody_else():
    register_codec("test zlib", lambda array: zlib.compress(array.tobytes()), zlib.decompress)
    with Compressed(Memory(), "test zlib") as store:
        found = run(store)
    assert found.adjoint.tobytes() == WANT.adjoint.tobytes()
    assert not found.report.lossy


def test_a_codec_that_loses_something_must_say_so():
    def shorten(array):
        return array.astype("f4").tobytes()

    def lengthen(content):
        return np.frombuffer(content, "f4").astype("f8")

    register_codec("test short", shorten, lengthen)
    with Compressed(Memory(), "test short") as store:
        store.put("a", np.array([0.5]))
        store.get("a")
        store.put("a", np.array([0.1]))
        with pytest.raises(pb.CorruptSnapshot, match="lossy=True"):
            store.get("a")
    register_codec("test short", shorten, lengthen, lossy=True)
    with Compressed(Memory(), "test short") as store:
        assert run(store, verify=False).report.lossy
    with pytest.raises(ValueError, match=r"codec must be one of .*, test short, not 'nothing'"):
        Compressed(Memory(), "nothing")
