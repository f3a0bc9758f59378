"""A run that came to its end has its result, whatever fails while it cleans up; no run takes another's for its own."""

from __future__ import annotations

import errno
import os
import signal
import warnings

import numpy as np
import pytest
from drive_problems import advance, reverse, same, start, store_everything

from pebbling import adjoint
from pebbling.chain import Revolve, Staged
from pebbling.drive import journal
from pebbling.store import Disk, Mock, clean, files, orphans

# Other tests of the same process may have loaded jax, which warns of forks. The children here use no jax.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

N = 12
SEED = np.ones(7)
WANT = store_everything(advance, reverse, start(), range(N), SEED)


class Count:
    """Into which nobody looks to tell one run from another."""

    steps = 0


COUNT = Count()


def counted(x, i):
    COUNT.steps += 1
    return advance(x, i)


def call(path, **options):
    return adjoint(counted, reverse, start(), N, SEED, **({"slots": 3, "resume": path} | options))


def exact(result):
    return same((result.state, result.adjoint), WANT)


class FailingCleanup:
    """``os`` in which the calls of one name fail from the moment that the run is over."""

    def __init__(self, name, error):
        self.name, self.error, self.over, self.armed = name, error, False, True

    def __getattr__(self, name):
        real = getattr(os, name)
        if name in ("fsync", "fdatasync"):
            return lambda descriptor: None
        if name != self.name:
            return real

        def fail(*arguments, **named):
            if self.over:
                raise OSError(self.error, os.strerror(self.error))
            return real(*arguments, **named)

        return fail


@pytest.fixture
def no_waiting(monkeypatch):
    """What a power failure would leave is tested with the stores; here waiting for the disk only takes time."""
    monkeypatch.setattr(files, "system", FailingCleanup("", 0))


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("name", ["unlink", "open", "pwritev", "rmdir", "close"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EBUSY, errno.EACCES, errno.EMFILE], ids=errno.errorcode.get)
def test_a_cleanup_that_fails_does_not_lose_the_result(tmp_path, monkeypatch, name, error, slow):
    system = FailingCleanup(name, error)
    monkeypatch.setattr(files, "system", system)
    finish = journal.Journal.finish

    def finished(self, run):
        finish(self, run)
        system.over, system.armed = system.armed, False

    monkeypatch.setattr(journal.Journal, "finish", finished)
    options = {"store": Disk(tmp_path / "run"), "schedule": Staged(N, 4, 1), "slots": None} if slow else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(tmp_path / "run", **options)
    assert exact(result)
    told = bool(result.report.left)
    assert told or name in ("rmdir", "close")
    assert told == ("left behind" in str(result.report)) == any("cleaned up" in str(each.message) for each in caught)
    system.over = False
    if slow:
        options["store"].close()
        options["store"] = Disk(tmp_path / "run")
    # Nothing of that stands in the way of the same call, nor of another one.
    assert exact(call(tmp_path / "run", **options))
    other = adjoint(advance, reverse, start(seed=5), N, SEED, slots=2, resume=tmp_path / "run") if not slow else None
    assert other is None or other.report.resumed_at is None
    if slow:
        options["store"].close()
    clean(tmp_path / "run") if (tmp_path / "run").exists() else None
    assert not (tmp_path / "run").exists() or orphans(tmp_path / "run") == []


def test_a_result_is_not_computed_again_where_its_entry_could_not_be_dropped(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        drop = Disk.drop

        def refuse(self, key):
            if key == "entry":
                raise journal.StoreError("no")
            drop(self, key)

        patched.setattr(Disk, "drop", refuse)
        with pytest.warns(UserWarning, match="its result is whole"):
            first = call(tmp_path / "run")
    assert exact(first)
    COUNT.steps = 0
    again = call(tmp_path / "run")
    assert COUNT.steps == 0
    assert exact(again)
    assert again.report.forwards == first.report.forwards
    assert not (tmp_path / "run").exists()


def test_a_warning_that_is_an_error_does_not_lose_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr(Disk, "drop", lambda self, key: (_ for _ in ()).throw(journal.StoreError("no")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exact(call(tmp_path / "run"))


def killed(path, at, state):
    """A run in a process that is killed with its ``at``-th commit, behind its entry; at 0, when its entry has gone."""
    process = os.fork()
    if process:
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
        return
    commits = []
    journal._SHARE = journal._GLANCE = 0
    drop, put = Disk.drop, Disk.put

    def dying_put(self, key, tree):
        put(self, key, tree)
        if key == "entry":
            commits.append(key)
            if len(commits) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def dying_drop(self, key):
        drop(self, key)
        if key == "entry":
            os.kill(os.getpid(), signal.SIGKILL)

    Disk.put, Disk.drop = dying_put, dying_drop
    adjoint(advance, reverse, state, N, SEED, slots=3, resume=path)
    os._exit(1)


@pytest.mark.parametrize("second", [1, 11, 20, 24])
@pytest.mark.usefixtures("no_waiting")
def test_what_another_run_left_is_never_taken_for_this_run_s(tmp_path, second):
    path, other = tmp_path / "run", start(seed=8)
    killed(path, 0, start())
    killed(path, 1, other)
    killed(path, second, other)
    result = adjoint(advance, reverse, other, N, SEED, slots=3, resume=path)
    want = store_everything(advance, reverse, other, range(N), SEED)
    assert same((result.state, result.adjoint), want)


def test_a_kill_while_the_store_is_tried_leaves_nothing_for_ever(tmp_path):
    path = tmp_path / "slow"
    process = os.fork()
    if not process:
        store = Mock(Disk(path, run="mine", keep=True))
        store.flush = lambda: os.kill(os.getpid(), signal.SIGKILL)
        adjoint(advance, reverse, np.ones(20_000), 40, np.ones(20_000), memory="2MB", store=store)
        os._exit(1)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL
    with Disk(path, run="mine", keep=True) as store:
        store.put("probe of mine", 1)
        assert [key for key in store.keys() if "probe " in key] != ["probe of mine"]  # noqa: SIM118
        adjoint(advance, reverse, start(), N, SEED, slots=3, store=store)
        assert store.keys() == ["probe of mine"]
        store.keep = False


def test_an_error_while_the_store_is_tried_leaves_nothing(tmp_path):
    with Disk(tmp_path / "slow", run="mine", keep=True) as store:
        broken = Mock(store, fail_at=2)
        with pytest.raises(journal.StoreError):
            adjoint(advance, reverse, np.ones(20_000), 40, np.ones(20_000), memory="2MB", store=broken)
        assert store.keys() == []
        store.keep = False


@pytest.mark.parametrize("calls", [1, 9, 14, 20])
@pytest.mark.parametrize("where", ["run", "elsewhere"])
def test_a_disk_store_follows_the_run_that_is_resumed(tmp_path, calls, where):
    class Power:
        left = calls

    def back(x, a, i):
        return step(reverse, x, a, i)

    def step(function, *arguments):
        Power.left -= 1
        if Power.left == 0:
            raise KeyboardInterrupt
        return function(*arguments)

    def attempt():
        with Disk(tmp_path / where) as store:
            return adjoint(
                lambda x, i: step(advance, x, i), back, start(), N, SEED, slots=3, store=store, resume=tmp_path / "run"
            )

    with pytest.raises(KeyboardInterrupt):
        attempt()
    assert (tmp_path / "run").exists()
    result = attempt()
    assert exact(result)
    assert result.report.resumed_at is not None
    assert list(tmp_path.iterdir()) == []


def test_what_died_before_it_had_its_name_goes_with_the_next_try(tmp_path):
    path = tmp_path / "run"
    process = os.fork()
    if not process:
        store = Disk(path)
        store.put(0, np.arange(1000))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    with Disk(path, run="abcdefabcdef", keep=True) as mine:
        mine.put("mine", 1)
    assert len({orphan.run for orphan in orphans(path)}) == 2
    with Disk(path) as store:
        assert exact(call(path, store=store))
    assert {orphan.run for orphan in orphans(path)} == {"abcdefabcdef"}
    with Disk(path, run="abcdefabcdef", keep=True) as mine:
        assert mine.get("mine") == 1


def test_a_store_that_follows_can_be_used_again_and_is_left_as_it_was(tmp_path):
    with Disk(tmp_path / "run") as store:
        for _ in range(2):
            assert exact(call(tmp_path / "run", store=store))
        assert not store.keep
        store.put("mine", 1)
        with pytest.raises(ValueError, match="holds 1 snapshots of yours"):
            call(tmp_path / "run", store=store)
        assert store.get("mine") == 1
    assert not (tmp_path / "run").exists()


def test_the_plan_of_a_resumed_run_is_data(tmp_path):
    from drive_problems import schedules_of, staged_of

    from pebbling.chain import Online
    from pebbling.drive.plans import as_read, as_written

    for schedule in [*schedules_of(N, 3).values(), *staged_of(N, 3).values()]:
        assert as_read(as_written(schedule), N) == schedule
    assert as_read(as_written(Online(4)), None) == Online(4)
    for wrong in (None, (), ("Revolve", {}), ("Revolve", {"steps": 10**30, "slots": 3}), ("os.system", {"steps": N})):
        with pytest.raises(ValueError, match="the schedule in the journal"):
            as_read(wrong, N)
    with pytest.raises(ValueError, match="is none: it is for None steps"):
        as_read(as_written(Online(4)), N)
    assert as_written(Revolve(3, 1)) == ("Revolve", {"steps": 3, "slots": 1, "prefer": Revolve(3, 1).prefer})
