"""Whatever goes wrong around a run, it ends with a clean error or the right bits, and leaves nothing behind."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
from contextlib import contextmanager

import numpy as np
import pytest
from drive_problems import (
    advance,
    every_store,
    reverse,
    same,
    schedules_of,
    staged_of,
    start,
    store_everything,
    written,
)

from pebbling import CorruptSnapshot, StoreError, StoreFull, adjoint
from pebbling.chain import Hierarchical, Revolve, Staged, Tier
from pebbling.store import Disk, Memory, Mock, files

SEED = np.ones(7)
WANT = {n: store_everything(advance, reverse, start(), range(n), SEED) for n in (2, 12, 20)}
SLOW = {
    "Revolve": Revolve(12, 3),
    "Staged": Staged(12, 4, 1),
    "Hierarchical": Hierarchical(12, [Tier(1), Tier(3, 1.0, 1.0)]),
}


def exact(result, n=12):
    return same((result.state, result.adjoint), WANT[n])


class Failing:
    """``os``, but for one call that fails, the ``at``-th of those that change something."""

    CHANGES = ("pwritev", "open", "fsync", "fdatasync", "replace", "posix_fallocate", "ftruncate", "mkdir")

    def __init__(self, at, error):
        self.at, self.error, self.calls = at, error, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in self.CHANGES:
            return real

        def call(*arguments):
            if name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR):
                self.calls += 1
                if self.calls == self.at:
                    raise OSError(self.error, os.strerror(self.error))
            # Nothing here depends on what a power failure would leave, and waiting for the disk takes its time.
            return None if name in ("fsync", "fdatasync") else real(*arguments)

        return call


def refused_as_full(refusal, error):
    """Whether there was a refusal; it must say that the disk is full if and only if that is so."""
    assert refusal is None or isinstance(refusal, StoreFull) == (error == errno.ENOSPC)
    return refusal is not None


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_at_any_call(tmp_path, monkeypatch, name, error):
    failures = 0
    for at in itertools.count(1):
        path = tmp_path / str(at)
        failing = Failing(at, error)
        monkeypatch.setattr(files, "system", failing)
        state, refusal = start(), None
        try:
            with Disk(path) as store:
                result = adjoint(advance, reverse, state, 12, SEED, schedule=SLOW[name], store=store)
                assert store.keys() == []
            assert exact(result)
        except StoreError as caught:
            refusal = caught
        failures += refused_as_full(refusal, error)
        assert state.flags.writeable
        assert not path.exists()
        if failing.calls < at:
            break
    assert failures > 20


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_journal_that_fails_at_any_call_keeps_what_was_committed(tmp_path, monkeypatch, error):
    monkeypatch.setattr("pebbling.drive.journal._SHARE", 0)
    monkeypatch.setattr("pebbling.drive.journal._GLANCE", 0)
    path = tmp_path / "run"
    failures = 0
    for at in itertools.count(1):
        failing = Failing(at, error)
        monkeypatch.setattr(files, "system", failing)
        refusal = None
        try:
            assert exact(adjoint(advance, reverse, start(), 2, SEED, slots=1, resume=path), 2)
        except StoreError as caught:
            refusal = caught
        failures += refused_as_full(refusal, error)
        monkeypatch.setattr(files, "system", Failing(0, error))
        assert exact(adjoint(advance, reverse, start(), 2, SEED, slots=1, resume=path), 2)
        assert not path.exists()
        if failing.calls < at:
            break
    assert failures > 50


@pytest.mark.parametrize("name", SLOW)
def test_a_store_that_fails_at_any_call(name):
    failures = 0
    for at in itertools.count(1):
        refusal = ""
        with Mock(fail_at=at, error=StoreFull) as store:
            try:
                assert exact(adjoint(advance, reverse, start(), 12, SEED, schedule=SLOW[name], store=store))
            except StoreFull as caught:
                refusal = str(caught)
            failures += "as it was told to" in refusal
            assert bool(refusal) == ("as it was told to" in refusal)
            assert store.store.keys() == []
            if len(store.log) < at:
                break
    assert failures >= 3


def test_a_store_with_too_little_room_is_refused_before_anything_runs():
    ran = []
    with Mock(limit=3 * 56) as store, pytest.raises(StoreFull):
        adjoint(lambda x, i: ran.append(i), reverse, start(), 12, SEED, slots=4, store=store)
    assert not ran


def slot_files(path):
    return sorted(file for file in path.iterdir() if file.suffix == ".slot")


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[4096 + 11] ^= 4
    file.write_bytes(content)


def cut_short(file):
    os.truncate(file, 4096 + 9)


DAMAGE = {"flipped bit": flip_a_bit, "cut short": cut_short, "removed": os.unlink}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", SLOW)
def test_damaged_files_are_computed_again(tmp_path, how, name):
    """All snapshots on disk are damaged at once, while the way back is at step 8."""

    def back(x, a, i):
        if i == 8:
            written(store)
            for file in slot_files(tmp_path / "d"):
                DAMAGE[how](file)
        return reverse(x, a, i)

    with Disk(tmp_path / "d") as store:
        result = adjoint(advance, back, start(), 12, SEED, schedule=SLOW[name], store=store, verify="all")
        assert exact(result)
        assert result.report.recovered >= 1
        assert "damaged snapshots, computed again" in str(result.report)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("lost", range(4))
def test_a_damaged_snapshot_is_computed_from_the_one_before_it(tmp_path, lost):
    calls = []

    def step(x, i):
        if i == 15 and not calls:
            written(store)
            (entry,) = (entry for key, entry in store._held.entries.items() if key.endswith(f"step {4 * lost}"))
            flip_a_bit(tmp_path / "d" / f"pebbling-{store.run}-{entry.slot}.slot")
        if calls or i == 19:
            calls.append(i)
        return advance(x, i)

    with Disk(tmp_path / "d") as store:
        result = adjoint(step, reverse, start(), 20, SEED, schedule=Staged(20, 5, 8), store=store)
    assert exact(result, 20)
    assert result.report.recovered == 1
    segments = [i for i in range(16) if i % 4 != 3]
    redone = range(max(4 * lost - 4, 0), 4 * lost)
    assert sorted(calls) == sorted([19, *segments, *redone])


def test_a_damaged_snapshot_of_a_state_with_a_generator(tmp_path):
    def step(s, i):
        return {"x": advance(s["x"], i) + 1e-6 * s["rng"].standard_normal(7), "rng": s["rng"]}

    def back(s, a, i):
        return reverse(s["x"], a, i)

    def losing_back(s, a, i):
        if i == 11:
            written(store)
            for file in slot_files(tmp_path / "d"):
                os.unlink(file)
        return back(s, a, i)

    state = {"x": start(), "rng": np.random.default_rng(5)}
    want = store_everything(step, back, state, range(12), SEED)
    with Disk(tmp_path / "d") as store:
        result = adjoint(step, losing_back, state, 12, SEED, schedule=Staged(12, 4, 1), store=store)
    assert same((result.state, result.adjoint), want)
    assert result.report.recovered in (2, 3)  # the first may have been read ahead


def test_silent_damage_is_noticed_by_verify_all():
    """A store that gives back other bits without a word: only a comparison finds it."""

    def back(x, a, i):
        if i == 11:
            store.corrupt = set(store.keys())
        return reverse(x, a, i)

    with Mock() as store:
        result = adjoint(advance, back, start(), 12, SEED, slots=3, store=store, verify="all")
        assert exact(result)
        assert result.report.recovered > 0
    with Mock() as store:
        assert not exact(adjoint(advance, back, start(), 12, SEED, slots=3, store=store, verify=False))


@contextmanager
def unprivileged():
    """As a user to whom permissions apply, which they do not to root."""
    user = os.geteuid()
    if user:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("deeper", ["", "deeper"])
def test_a_directory_that_can_not_be_written_to(deeper):
    ran = []
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o555)
        try:
            with unprivileged():
                with pytest.raises(StoreError, match=rf"failed: {path}.*: Permission denied"):
                    adjoint(lambda x, i: ran.append(i), reverse, start(), 12, SEED, resume=os.path.join(path, deeper))
                with pytest.raises(StoreError, match=rf"failed: {path}.*: Permission denied"):
                    Disk(os.path.join(path, deeper))
        finally:
            os.chmod(path, 0o755)
        assert os.listdir(path) == []
    assert not ran


def test_a_file_system_that_becomes_read_only(tmp_path, monkeypatch):
    """Whatever is tried after step 5 of the sweep, it is refused: the run ends, and says why."""

    class ReadOnly:
        def __getattr__(self, name):
            return refuse if name in Failing.CHANGES else getattr(os, name)

    def refuse(*arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def step(x, i):
        if i == 5:
            monkeypatch.setattr(files, "system", ReadOnly())
        return advance(x, i)

    with Disk(tmp_path / "d") as store:
        with pytest.raises(StoreError, match="Read-only file system"):
            adjoint(step, reverse, start(), 12, SEED, schedule=SLOW["Staged"], store=store)
        monkeypatch.setattr(files, "system", os)
        for key in store.keys():  # noqa: SIM118
            store.drop(key)
    assert not (tmp_path / "d").exists()


def test_two_runs_in_one_directory(tmp_path):
    def step(x, i):
        if i == 3:
            with pytest.raises(StoreError, match="in use by process"):
                adjoint(advance, reverse, start(), 12, SEED, slots=3, resume=tmp_path / "run")
        return advance(x, i)

    assert exact(adjoint(step, reverse, start(), 12, SEED, slots=3, resume=tmp_path / "run"))


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["advance", "reverse", "seed", "steps", "dump"])
def test_the_users_own_error_comes_through(tmp_path, error, where):
    raised = error("at step 7")

    def fail_at_seven(x, i):
        if i == 7:
            raise raised
        return True

    def step(x, i):
        if where == "advance":
            fail_at_seven(x, i)
        return advance(x, i)

    def back(x, a, i):
        if where == "reverse":
            fail_at_seven(x, i)
        return reverse(x, a, i)

    def seed(x):
        if where == "seed":
            raise raised
        return SEED

    options = {"steps": 12, "schedule": Staged(12, 4, 1)}
    if where == "steps":
        options = {"steps": fail_at_seven, "slots": 3}
    if where == "dump":
        options["dump"] = lambda state, adjoint, step: fail_at_seven(state, step)
    state = start()
    with Disk(tmp_path / "d") as store:
        with pytest.raises(error) as caught:
            adjoint(step, back, state, seed=seed, store=store, **options)
        assert caught.value is raised
        assert caught.value.__cause__ is None
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames[-1] == ("seed" if where == "seed" else "fail_at_seven")
        assert store.keys() == []
        assert state.flags.writeable
        assert "pebbling store" not in [thread.name for thread in threading.enumerate()]
    assert not (tmp_path / "d").exists()


SIGINT = """
    import signal, sys, time
    import numpy as np
    sys.path.insert(0, {tests!r})
    from drive_problems import advance, reverse, start
    from pebbling import adjoint
    from pebbling.chain import Staged
    from pebbling.store import Disk

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background

    def step(x, i):
        if i == 7:
            print("now", flush=True)
            time.sleep(60)
        return advance(x, i)

    with Disk({path!r}) as store:
        adjoint(step, reverse, start(), 12, np.ones(7), schedule=Staged(12, 4, 1), store=store)
"""


def test_ctrl_c(tmp_path):
    script = textwrap.dedent(SIGINT.format(tests=os.path.dirname(__file__), path=str(tmp_path / "d")))
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "now\n"
    assert (tmp_path / "d").exists()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")
    assert "in step" in errors
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("kind", ["Memory", "Disk"])
def test_a_store_is_as_good_as_new_after_an_error(tmp_path, kind):
    with every_store(kind, tmp_path) as store:
        for schedule in (schedules_of(12, 3) | staged_of(12, 3)).values():
            for when in (0, 5, 11):

                def step(x, i, when=when):
                    if i == when:
                        raise Broken
                    return advance(x, i)

                with pytest.raises(Broken):
                    adjoint(step, reverse, start(), 12, SEED, schedule=schedule, store=store)
                assert store.keys() == []
        assert exact(adjoint(advance, reverse, start(), 12, SEED, slots=3, store=store))


def test_a_snapshot_that_can_not_be_recovered_because_a_step_fails():
    class Gone(Memory):
        def get(self, key):
            raise CorruptSnapshot("gone")

    calls = []

    def step(x, i):
        calls.append(i)
        if len(calls) > 13:
            raise Broken
        return advance(x, i)

    with Gone() as store, pytest.raises(Broken):
        adjoint(step, reverse, start(), 12, SEED, slots=3, store=store)
