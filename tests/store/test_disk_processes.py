"""Several processes and a disk store: forks, ranks that begin together, a full disk, systems without locks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from pebbling.errors import StoreError, StoreFull
from pebbling.store import Disk, clean, files, lock, orphans


def python(code, *arguments):
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]


def test_a_worker_that_outlives_its_run_holds_no_lock(tmp_path):
    code = """
        import os, sys, time, numpy as np
        from pebbling.store import Disk
        store = Disk(sys.argv[1], run="r", keep=True)
        store.put(0, np.arange(3))
        worker = os.fork()
        if worker == 0:
            os.close(1), os.close(2)
            time.sleep(60)
        print(worker, flush=True)
        os._exit(0)
    """
    done = subprocess.run(python(code, tmp_path), capture_output=True, text=True, check=True, timeout=30)
    worker = int(done.stdout)
    try:
        with Disk(tmp_path, run="r", keep=True) as store:
            assert store.get(0).tolist() == [0, 1, 2]
            store.keep = False
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_process_that_has_ended_is_not_blamed_for_its_child(tmp_path):
    done = subprocess.run(python("import os; print(os.getpid())"), capture_output=True, text=True, check=True)
    with Disk(tmp_path) as store:
        content = (
            (tmp_path / lock.NAME).read_bytes().replace(b'"pid": %d' % os.getpid(), b'"pid": ' + done.stdout.encode())
        )
        (tmp_path / lock.NAME).write_bytes(content)
        with pytest.raises(StoreError, match="which has ended, but left its lock to a process that it started"):
            Disk(tmp_path)
        store.put(0, 1)


def test_ranks_that_begin_together_make_their_directory_once(tmp_path):
    code = """
        import sys, time, numpy as np
        from pebbling.store import Disk
        while time.time() < float(sys.argv[2]): pass
        for number in range(40):
            with Disk(f"{sys.argv[1]}/missing/{number}/deep/{sys.argv[3]}") as store:
                store.put(0, np.arange(3))
        print("well")
    """
    import time

    begin = time.time() + 1.5
    ranks = [
        subprocess.Popen(python(code, tmp_path, begin, rank), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=60)
        assert (out, err) == ("well\n", "")
    # Who made a directory may not be the last to leave it.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Full:
    """``os`` on a disk without room: nothing grows."""

    def __init__(self):
        self.full = False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("pwritev", "posix_fallocate"):
            return real

        def call(descriptor, content, offset):
            size = offset if name == "posix_fallocate" else sum(map(len, map(memoryview, content)))
            begin = content if name == "posix_fallocate" else offset
            if self.full and begin + size > os.fstat(descriptor).st_size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(descriptor, content, offset)

        return call


def test_dropping_needs_no_room(tmp_path, monkeypatch):
    system = Full()
    monkeypatch.setattr(files, "system", system)
    with Disk(tmp_path, run="r", keep=True) as store:
        for key in range(300):
            store.put(f"a rather long name for a snapshot {key}", key)
        system.full = True
        with pytest.raises(StoreFull):
            store.put("one more", np.zeros(10**6))
        for key in store.keys():  # noqa: SIM118
            store.drop(key)
        assert store.keys() == []
        system.full = False
    with Disk(tmp_path, run="r", keep=True) as store:
        assert store.keys() == []
        store.keep = False
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["open", "close", "unlink", "ftruncate", "fchmod", "link", "mkdir", "posix_fallocate"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.EACCES], ids=errno.errorcode.get)
def test_no_error_of_the_system_comes_through(tmp_path, monkeypatch, name, error):
    class Broken:
        at = 0
        calls = 0

        def __getattr__(self, called):
            real = getattr(os, called)
            if called != name:
                return real

            def fail(*arguments, **named):
                self.calls += 1
                if self.calls == self.at:
                    if name == "close":
                        os.close(*arguments)
                    raise OSError(error, os.strerror(error))
                return real(*arguments, **named)

            return fail

    for at in range(1, 40):
        broken = Broken()
        broken.at = at
        with monkeypatch.context() as patched:
            patched.setattr(files, "system", broken)
            try:
                with Disk(tmp_path / "made" / "deep", run="r", keep=True) as store:
                    store.reserve(2, 1000)
                    for key in range(2):
                        store.put(key, np.arange(100))
                    store.get(1)
                    store.drop(0)
                    orphans(store.path)
                clean(tmp_path / "made" / "deep")
            except StoreError as problem:
                assert str(tmp_path) in str(problem)  # noqa: PT017
        if broken.calls < at:
            break
    if (tmp_path / "made" / "deep").exists():
        clean(tmp_path / "made" / "deep")
        assert os.listdir(tmp_path / "made" / "deep") == []


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_refused_by_name(tmp_path, monkeypatch, error):
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(descriptor, how):
            raise OSError(error, os.strerror(error))

    monkeypatch.setitem(sys.modules, "fcntl", NoLocks)
    with pytest.raises(StoreError, match=r"lock.*pebbling\.lock"):
        Disk(tmp_path)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(StoreError, match="no locks on files"):
        Disk(tmp_path)
    monkeypatch.undo()
    Disk(tmp_path).close()
    assert os.listdir(tmp_path) == []


def test_where_no_file_is_without_a_name_a_store_works_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_NAMELESS", 0)
    with Disk(tmp_path / "s", run="r", keep=True) as store:
        store.put(0, np.arange(3))
    with Disk(tmp_path / "s", run="r", keep=True) as store:
        assert store.get(0).tolist() == [0, 1, 2]
        store.keep = False
    assert os.listdir(tmp_path) == []


def test_paths_of_every_kind(tmp_path):
    real = tmp_path / "ü ∂\n'x"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    for path in (real, os.fsencode(real / "inner"), str(tmp_path / "link"), tmp_path / "link" / "CON." / "aux"):
        with Disk(path) as store:
            store.put(0, np.arange(3))
            assert store.get(0).tolist() == [0, 1, 2]
    assert os.listdir(real) == []


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    with Disk(tmp_path, run="r", keep=True) as store:
        store.put(0, 1)
        monkeypatch.setattr("time.time", lambda: -1e12)
        store.put(0, 2)
    with Disk(tmp_path, run="r", keep=True) as store:
        assert store.get(0) == 2
        store.keep = False
