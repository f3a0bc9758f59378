"""Whichever system call fails, or is the last of the process or of the machine: what was committed is what is found."""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress

import numpy as np
import pytest

from pebbling import tree
from pebbling.errors import CorruptSnapshot, StoreError, StoreFull
from pebbling.store import Disk, clean, orphans
from pebbling.store.memory import Memory

BIG = 3000


def state(number, size=BIG):
    return {"u": np.random.default_rng(number).random(size), "n": number, "rng": np.random.default_rng(number)}


WORK = [
    ("put", 0, state(1)),
    ("put", "b", state(2)),
    ("put", 0, state(3)),
    ("drop", "b", None),
    ("put", "c", state(4, 2 * BIG)),
    ("put", 0, state(5, 10)),
    ("put", "c", state(6)),
    ("drop", 0, None),
    ("put", "b", state(7)),
]


def apply(store, work):
    name, key, value = work
    if name == "put":
        store.put(key, value)
    else:
        store.drop(key)


def contents(store):
    return {key: store.get(key) for key in list(store.keys())}


def equal(found, expected):
    return found.keys() == expected.keys() and all(tree.differing(found[key], expected[key]) is None for key in found)


def model(count):
    with Memory() as store:
        for work in WORK[:count]:
            apply(store, work)
        return contents(store)


MODELS = [model(count) for count in range(len(WORK) + 1)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("durable", [False, True])
def test_a_call_that_fails_changes_nothing(tmp_path, system, short_journal, number, durable):
    for at in itertools.count(1):
        path = tmp_path / str(at)
        path.mkdir()
        faulty = system(at=at, how=number)
        failed = []
        try:
            store = Disk(path, run="r", keep=True, durable=durable)
        except StoreError as error:
            failed.append(error)
            store = Disk(path, run="r", keep=True, durable=durable)
        expected = Memory()
        for work in WORK:
            try:
                apply(store, work)
            except StoreError as error:
                failed.append(error)
                assert equal(contents(store), contents(expected))
                apply(store, work)
            apply(expected, work)
            assert equal(contents(store), contents(expected))
        assert store.nbytes == sum(entry.nbytes for entry in store._held.entries.values())
        try:
            store.close()
        except StoreError as error:
            failed.append(error)
        for error in failed:
            assert str(path) in str(error)
            assert isinstance(error, StoreFull) == (number == errno.ENOSPC and "could not remove" not in str(error))
        struck = faulty.struck
        system()
        with Disk(path, run="r", keep=True) as again:
            assert equal(contents(again), contents(expected))
            again.keep = False
        assert os.listdir(path) == []
        if not struck:
            assert at > 30
            return


def test_what_was_reported_as_failed_is_not_found_after_a_crash(tmp_path, system, short_journal):
    failures = 0
    for at in itertools.count(1):
        path = tmp_path / str(at)
        path.mkdir()
        system()
        store = Disk(path, run="r", keep=True, durable=True)
        faulty = system(at=at, how=errno.EIO)
        faulty.descriptors.update({store._directory.lock._descriptor: "", store._journal._descriptor: ""})
        done = 0
        try:
            for work in WORK:
                apply(store, work)
                done += 1
        except StoreError:
            failures += 1
        store._finalize.detach()
        faulty.bury()
        system()
        with Disk(path, run="r", keep=True) as again:
            assert equal(contents(again), MODELS[done])
        if not faulty.struck:
            assert failures > 20
            return


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_store_that_fails_to_open_leaves_nothing(tmp_path, system, number):
    refused = 0
    for at in itertools.count(1):
        path = tmp_path / "made" / "on the way"
        faulty = system(at=at, how=number)
        try:
            Disk(path, durable=True).close()
        except StoreError:
            refused += 1
        struck = faulty.struck
        system()
        if path.exists():
            clean(path)
            assert os.listdir(path) == []
            path.rmdir()
            path.parent.rmdir()
        if not struck:
            assert refused >= 8
            return


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_crash_leaves_what_was_committed(tmp_path, system, short_journal, crash, durable, seed):
    assert strike_everywhere(tmp_path, system, crash, durable, "crash", seed) > 30


@pytest.mark.parametrize("seed", range(6))
def test_a_power_failure_leaves_what_was_committed(tmp_path, system, short_journal, crash, seed):
    assert strike_everywhere(tmp_path, system, crash, True, "power", seed) > 40


def strike_everywhere(tmp_path, system, crash, durable, how, seed):
    for at in itertools.count(1):
        path = tmp_path / str(at)
        path.mkdir()
        faulty = system(at=at, how=how, seed=1000 * seed + at)
        done, store = 0, None
        try:
            store = Disk(path, run="r", keep=True, durable=durable)
            for done, work in enumerate(WORK, 1):  # noqa: B007
                apply(store, work)
            done = len(WORK) + 1
            store.close()
        except crash:
            done = max(done - 1, 0)
        else:
            assert not faulty.struck
            return at
        if store is not None:
            store._finalize.detach()
        faulty.bury()
        system()
        allowed = MODELS[done : done + 2]
        with Disk(path, run="r", keep=True) as again:
            found = contents(again)
            assert any(equal(found, expected) for expected in allowed), (at, faulty.calls[-1], done)
            again.put("new", state(99))
            assert tree.differing(again.get("new"), state(99)) is None
        with Disk(path, run="r", keep=True) as again:
            assert equal(contents(again), found | {"new": state(99)})
            again.keep = False
        assert orphans(path) == []
    return 0


def test_the_stand_in_notices_a_store_that_does_not_sync(tmp_path, system, short_journal, crash):
    def strike_often():
        for seed in range(20):
            (tmp_path / str(seed)).mkdir()
            strike_everywhere(tmp_path / str(seed), system, crash, False, "power", seed)

    with pytest.raises((AssertionError, StoreError)):
        strike_often()


def test_a_store_that_was_not_durable_says_what_to_do_after_a_power_failure(tmp_path, system, short_journal, crash):
    right = refused = 0
    for at in range(1, 75):
        path = tmp_path / str(at)
        path.mkdir()
        faulty = system(at=at, how="power", seed=at)
        store = None
        try:
            store = Disk(path, run="r", keep=True)
            for work in WORK:
                apply(store, work)
            store.close()
        except crash:
            pass
        if store is not None:
            store._finalize.detach()
        faulty.bury()
        system()
        try:
            with Disk(path, run="r", keep=True) as again:
                assert set(again.keys()) <= {0, "b", "c"}
                for key in again.keys():  # noqa: SIM118
                    with suppress(CorruptSnapshot):
                        assert any(tree.differing(again.get(key), model.get(key)) is None for model in MODELS)
            right += 1
        except StoreError as error:
            refused += 1
            said = str(error)
            assert "clean" in said
            assert "durable=True" in said or "without a journal" in said
        clean(path)
        with Disk(path, run="another") as again:
            again.put(0, 1)
            assert again.get(0) == 1
    assert right > 10
    assert refused > 10


def test_a_full_disk_is_told_with_its_numbers(tmp_path, system):
    with Disk(tmp_path / "s") as store:
        store.put(0, np.zeros(10))
        system(at=2, how=errno.ENOSPC)
        with pytest.raises(StoreFull, match=r"No space left.*7\.\d+ MiB needed, .* free"):
            store.put(0, np.zeros(10**6))
        system()
        assert store.get(0).tolist() == [0.0] * 10
        grown = sum(os.path.getsize(file.path) for file in store._directory.own())
        assert grown < 40_000
        store.put(0, np.ones(10))
        assert store.get(0).tolist() == [1.0] * 10


def test_reserving_more_than_there_is_is_refused_before_the_start(tmp_path):
    with Disk(tmp_path / "s") as store:
        with pytest.raises(
            StoreFull, match=r"1000 snapshots of 1,024 GiB need 1,\d+ TiB more in .* are free|1000 snap"
        ):
            store.reserve(1000, 2**40)
        assert [file for file in store._directory.own() if file.number is not None] == []
        store.put(0, np.zeros(3))


def test_reserving_takes_the_space(tmp_path):
    with Disk(tmp_path / "s") as store:
        store.put("held", np.zeros(1000))
        store.reserve(4, 10**6)
        slots = [file.path for file in store._directory.own() if file.number is not None]
        assert len(slots) == 4
        assert sum(os.stat(slot).st_blocks * 512 for slot in slots) >= 3 * 10**6
        before = sorted(slots)
        for key in range(3):
            store.put(key, np.full(10**6 // 8, float(key)))
        assert sorted(file.path for file in store._directory.own() if file.number is not None) == before
        store.reserve(4, 10**6)
        assert [store.get(key)[0] for key in range(3)] == [0.0, 1.0, 2.0]


def test_reserving_that_fails_midway_leaves_the_store_usable(tmp_path, system):
    with Disk(tmp_path / "s") as store:
        store.put(0, np.arange(3))
        system(at=5, how=errno.ENOSPC)
        with pytest.raises(StoreFull, match="setting space aside"):
            store.reserve(5, 10**5)
        system()
        store.put(1, np.arange(4))
        assert (store.get(0).tolist(), store.get(1).tolist()) == ([0, 1, 2], [0, 1, 2, 3])
        store.reserve(5, 10**5)
    assert not (tmp_path / "s").exists()
