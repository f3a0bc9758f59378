"""Whose files are whose: locks, leftovers, foreign files, forks, the end of the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from pebbling import tree
from pebbling.errors import StoreError
from pebbling.store import Disk, clean, files, lock, orphans


def python(code, *arguments):
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]


HOLD = """
    import sys, time, numpy as np
    from pebbling.store import Disk
    store = Disk(sys.argv[1], run=sys.argv[2], keep=len(sys.argv) > 3)
    for key in range(3):
        store.put(key, np.full(1000, key))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a store, and is killed without warning."""
    started = []

    def start(path, run, *keep):
        process = subprocess.Popen(python(HOLD, path, run, *keep), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_second_store_on_the_same_path_is_refused(tmp_path):
    with Disk(tmp_path / "s") as store:
        store.put(0, 1)
        with pytest.raises(
            StoreError, match=rf"in use by process {os.getpid()} on .*run {store.run!r}.*another direct"
        ):
            Disk(tmp_path / "s")
        assert store.get(0) == 1
    Disk(tmp_path / "s").close()
    assert not (tmp_path / "s").exists()


def test_a_store_of_another_process_is_left_alone(tmp_path, holder):
    process = holder(tmp_path, "theirs")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StoreError, match=rf"process {process.pid} on .*'theirs'"):
        Disk(tmp_path)
    with pytest.raises(StoreError, match=f"process {process.pid}"):
        clean(tmp_path)
    assert orphans(tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == before
    assert process.poll() is None


def test_what_a_killed_process_left_is_listed_and_removed_on_request(tmp_path, holder):
    foreign = {"notes.txt": b"mine", "pebbling-theirs-9.slot": b"not a slot", "pebbling-x.journal": b"not a journal\n"}
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "pebbling-theirs-8.slot").mkdir()
    killed(holder(tmp_path, "theirs"))
    found = orphans(tmp_path)
    names = {os.path.basename(orphan.path) for orphan in found}
    assert names == {"pebbling.lock", "pebbling-theirs.journal", *(f"pebbling-theirs-{n}.slot" for n in range(3))}
    assert {orphan.run for orphan in found if orphan.run} == {"theirs"}
    assert all(orphan.nbytes == os.path.getsize(orphan.path) for orphan in found)
    assert sum(orphan.nbytes for orphan in found) > 3 * 8000
    assert not any(orphan.resumable for orphan in found)

    with Disk(tmp_path) as store:
        store.put(0, 1)
        assert store.keys() == [0]
        assert {orphan.path for orphan in orphans(tmp_path)} == {o.path for o in found if o.run}
    with pytest.raises(StoreError, match=r"run 'theirs' left 4 files.*keep=True.*clean"):
        Disk(tmp_path, run="theirs")
    assert len(orphans(tmp_path)) == 4

    assert clean(tmp_path, run="another") == []
    assert len(clean(tmp_path)) == 4
    assert orphans(tmp_path) == []
    assert {name: (tmp_path / name).read_bytes() for name in foreign} == foreign
    assert sorted(os.listdir(tmp_path)) == sorted([*foreign, "pebbling-theirs-8.slot"])


def test_foreign_files_in_the_way_are_left_alone(tmp_path):
    (tmp_path / "pebbling-r-0.slot").write_bytes(b"someone's")
    with Disk(tmp_path, run="r") as store:
        store.put(0, np.arange(3))
        assert store.get(0).tolist() == [0, 1, 2]
    assert os.listdir(tmp_path) == ["pebbling-r-0.slot"]
    assert (tmp_path / "pebbling-r-0.slot").read_bytes() == b"someone's"


def test_a_killed_run_that_was_to_be_kept_is_found_again(tmp_path, holder):
    killed(holder(tmp_path, "mine", "keep"))
    assert all(orphan.resumable for orphan in orphans(tmp_path) if orphan.run)
    with Disk(tmp_path, run="mine", keep=True) as store:
        assert store.keys() == [0, 1, 2]
        assert [store.get(key)[0] for key in range(3)] == [0, 1, 2]
        store.drop(1)
    with Disk(tmp_path, run="mine", keep=True) as store:
        assert store.keys() == [0, 2]
        store.keep = False
    assert os.listdir(tmp_path) == []


def test_two_kept_runs_share_a_directory_one_after_the_other(tmp_path):
    for run in ("a", "a-1", "a.journal"):
        with Disk(tmp_path, run=run, keep=True) as store:
            store.put("name", run)
    for run in ("a", "a-1", "a.journal"):
        with Disk(tmp_path, run=run, keep=True) as store:
            assert store.get("name") == run
            store.keep = False
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_loses_nothing_it_had_committed(tmp_path, seed):
    code = """
        import sys, numpy as np
        from pebbling.store import Disk
        store = Disk(sys.argv[1], run="r", keep=True)
        for number in range(10**6):
            store.put(number % 3, np.full(20_000, number))
            print(number, flush=True)
    """
    process = subprocess.Popen(python(code, tmp_path), stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.02 + 0.05 * np.random.default_rng(seed).random())
    killed(process)
    last = max(int(line) for line in process.stdout.read().split())
    process.stdout.close()
    with Disk(tmp_path, run="r", keep=True) as store:
        found = {key: store.get(key) for key in list(store.keys())}
        for values in found.values():
            assert (values == values[0]).all()
        numbers = sorted(int(values[0]) for values in found.values())
        expected = [number for number in range(last - 2, last + 1) if number >= 0]
        following = [number for number in range(last - 1, last + 2) if number >= 0]
        assert numbers in (expected, following, [*expected, last + 1])


def test_the_end_of_the_interpreter_removes_everything(tmp_path):
    code = """
        import sys, numpy as np
        from pebbling.store import Disk, HDF5, Background
        a = Disk(sys.argv[1] + "/a/b"); a.put(0, np.zeros(1000))
        b = Background(Disk(sys.argv[1] + "/c")); b.put(0, np.zeros(1000))
        c = HDF5(sys.argv[1] + "/d.h5"); c.put(0, np.zeros(1000))
        assert len(__import__("os").listdir(sys.argv[1])) == 3
    """
    done = subprocess.run(python(code, tmp_path), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert os.listdir(tmp_path) == []


def test_a_store_that_is_forgotten_removes_everything(tmp_path):
    store = Disk(tmp_path / "s")
    store.put(0, np.zeros(10))
    del store
    assert os.listdir(tmp_path) == []


def test_a_forked_process_leaves_no_trace(tmp_path):
    code = """
        import os, sys, warnings, numpy as np
        from pebbling.errors import StoreError
        from pebbling.store import Background, Disk
        # Python 3.12 and later warn of any fork beside threads.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        store, behind = Disk(sys.argv[1] + "/a"), Background(Disk(sys.argv[1] + "/b"))
        store.put(0, np.arange(3))
        behind.put(0, np.arange(3))
        behind.flush()
        if os.fork() == 0:
            for each in (store, behind):
                try: each.put(1, 1)
                except StoreError as error: print("forked" in str(error), flush=True)
            sys.exit()
        os.wait()
        print(store.get(0).tolist(), behind.get(0).tolist(), flush=True)
    """
    done = subprocess.run(python(code, tmp_path), capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\nTrue\n[0, 1, 2] [0, 1, 2]\n", "")
    assert os.listdir(tmp_path) == []


def test_the_directory_stays_when_it_was_there_or_is_not_empty(tmp_path):
    Disk(tmp_path).close()
    assert tmp_path.exists()
    with Disk(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "mine").write_text("x")
    assert (tmp_path / "a" / "b" / "mine").read_text() == "x"
    with Disk(tmp_path / "c" / "d" / "e") as store:
        store.put(0, 1)
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_a_kept_run_remembers_that_it_made_the_directory(tmp_path):
    with Disk(tmp_path / "made", run="r", keep=True) as store:
        store.put(0, 1)
    with Disk(tmp_path / "made", run="r", keep=True) as store:
        store.keep = False
    assert os.listdir(tmp_path) == []


def test_a_directory_that_vanished_is_no_trouble(tmp_path):
    store = Disk(tmp_path / "s")
    store.put(0, 1)
    for name in os.listdir(tmp_path / "s"):
        (tmp_path / "s" / name).unlink()
    (tmp_path / "s").rmdir()
    with pytest.raises(StoreError, match="is gone"):
        store.get(0)
    store.close()
    assert os.listdir(tmp_path) == []


def test_a_free_slot_that_vanished_is_made_anew(tmp_path):
    with Disk(tmp_path / "s") as store:
        store.put(0, np.arange(1000))
        path = store._directory.slot(store._held.entries[0].slot)
        store.drop(0)
        os.unlink(path)
        store.put(0, np.arange(5))
        assert store.get(0).tolist() == [0, 1, 2, 3, 4]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("run", ["", "a/b", "..", "a b", "-a", "a-"])
def test_names_of_runs_are_checked(tmp_path, run):
    with pytest.raises(ValueError, match="a run is named with"):
        Disk(tmp_path, run=run)
    assert os.listdir(tmp_path) == []


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file"):
        Disk(tmp_path / "file")
    with pytest.raises(StoreError, match="not a directory"):
        orphans(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"


def test_a_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    class ReadOnly:
        def __getattr__(self, name):
            return getattr(os, name)

        def open(self, path, flags, mode=0o777):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise PermissionError(13, "Permission denied")
            return os.open(path, flags, mode)

    monkeypatch.setattr(files, "system", ReadOnly())
    with pytest.raises(StoreError, match=r"pebbling\.lock: Permission denied"):
        Disk(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_lock_whose_file_was_removed_in_the_meantime_is_not_trusted(tmp_path, monkeypatch):
    path, locked, removed = tmp_path / lock.NAME, lock._locked, []

    def locked_too_late(descriptor):
        if not removed:
            removed.append(path.stat().st_ino)
            path.unlink()
        return locked(descriptor)

    lock.DirectoryLock(str(tmp_path), "dead").forget()
    monkeypatch.setattr(lock, "_locked", locked_too_late)
    taken = lock.DirectoryLock(str(tmp_path), "a")
    assert removed
    assert path.exists()
    assert os.path.samestat(os.fstat(taken._descriptor), path.stat())
    with pytest.raises(StoreError, match="in use"):
        lock.DirectoryLock(str(tmp_path), "b")
    taken.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_without_a_name_is_still_a_lock(tmp_path):
    first = lock.DirectoryLock(str(tmp_path), "a")
    for content in (b"", b"{", b"[]"):
        with open(first.path, "wb") as file:
            file.write(content)
        with pytest.raises(StoreError, match="in use by another process"):
            Disk(tmp_path)
    first.release()
    Disk(tmp_path).close()
    assert os.listdir(tmp_path) == []


def test_states_of_every_kind_are_found_again(tmp_path):
    from pebbling.store.conformance import examples

    with Disk(tmp_path, run="r", keep=True) as store:
        for name, state in examples():
            store.put(name, state)
    with Disk(tmp_path, run="r", keep=True) as store:
        for name, state in examples():
            assert tree.differing(store.get(name), state) is None, name
        assert len(store.keys()) > 25
