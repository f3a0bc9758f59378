"""A run that was killed goes on where it was, and ends with the same bits; another run in its place is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from drive_problems import advance, reverse, same, schedules_of, staged_of, start, store_everything

from pebbling import ResumeError, adjoint
from pebbling.chain import Mixed, Revolve, Staged, StoreAll
from pebbling.store import Disk, Memory, clean, files

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"
SEED = np.ones(7)
N = 30
WANT = store_everything(advance, reverse, start(), range(N), SEED)


@pytest.fixture(autouse=True)
def commit_all_the_time(monkeypatch):
    """A commit after every action, and no waiting for the disk."""

    class NoWaiting:
        def __getattr__(self, name):
            return (lambda descriptor: None) if name in ("fsync", "fdatasync") else getattr(os, name)

    monkeypatch.setattr("pebbling.drive.journal._SHARE", 0)
    monkeypatch.setattr("pebbling.drive.journal._GLANCE", 0)
    monkeypatch.setattr(files, "system", NoWaiting())


class Power:
    """Goes off after a number of calls, and then is back for good."""

    def __init__(self, calls):
        self.calls = calls
        self.log = []

    def use(self, what):
        self.log.append(what)
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt


def powered(power):
    def step(x, i):
        power.use(i)
        return advance(x, i)

    def back(x, a, i):
        power.use(~i)
        return reverse(x, a, i)

    return step, back


def exact(result):
    return same((result.state, result.adjoint), WANT)


# The power is off after so many steps and reversals. The functions are the same, and so is what they refer to by
# name, but for the object that counts, into which nobody looks.


@pytest.mark.parametrize("name", [*schedules_of(N, 3), "predicate", "predicate, one slot"])
@pytest.mark.parametrize("calls", [1, 2, 17, 29, 30, 31, 45, 60, 75])
def test_an_interrupted_run_goes_on(tmp_path, name, calls):
    power = Power(calls)
    step, back = powered(power)
    options = {"steps": N, "schedule": schedules_of(N, 3).get(name)}
    if name.startswith("predicate"):
        options = {"steps": lambda x, i: i < N, "slots": 1 if "one" in name else 4}

    def call():
        return adjoint(step, back, start(), seed=SEED, resume=tmp_path / "run", **options)

    try:
        result = call()
        assert len(power.log) < calls
    except KeyboardInterrupt:
        before = len(power.log)
        assert any((tmp_path / "run").iterdir())
        result = call()
        whole = adjoint(*powered(Power(-1)), start(), seed=SEED, **options).report
        # The step that was interrupted runs again, and nothing else does.
        assert len(power.log) == whole.advances + whole.reversals + 1
        assert power.log[before] == power.log[before - 1]
        assert result.report.resumed_at is not None
        assert "resumed" in str(result.report)
        counts = ("advances", "reversals", "stores", "restores", "compared")
        assert [getattr(result.report, count) for count in counts] == [getattr(whole, count) for count in counts]
    assert exact(result)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [*staged_of(N, 3), "Revolve"])
@pytest.mark.parametrize("calls", [9, 28, 31, 50, 66])
@pytest.mark.parametrize("lose", [False, True])
def test_with_a_kept_disk_as_slow_tier(tmp_path, name, calls, lose):
    power = Power(calls)
    step, back = powered(power)
    schedule = (schedules_of(N, 3) | staged_of(N, 3))[name]

    def call():
        with Disk(tmp_path / "slow", run="slow", keep=True) as store:
            result = adjoint(step, back, start(), N, SEED, schedule=schedule, store=store, resume=tmp_path / "run")
            assert store.keys() == []
            store.keep = False
            return result

    with pytest.raises(KeyboardInterrupt):
        call()
    if lose:
        clean(tmp_path / "slow")
    result = call()
    assert exact(result)
    if not lose:
        # The interrupted step runs again, and so may what leads to the snapshots that were on their way to the disk.
        with Memory() as store:
            whole = adjoint(*powered(Power(-1)), start(), N, SEED, schedule=schedule, store=store).report
        assert len(power.log) <= whole.advances + whole.reversals + 1 + N
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_snapshots_of_another_run_in_the_slow_store_are_not_taken(tmp_path):
    with Disk(tmp_path / "slow", run="slow", keep=True) as store:
        other = np.random.default_rng(9).random(7)
        step, back = powered(Power(40))
        with pytest.raises(KeyboardInterrupt):
            adjoint(step, back, other, N, SEED, slots=3, store=store, resume=tmp_path / "other")
        assert store.keys()
        step, back = powered(Power(40))
        with pytest.raises(KeyboardInterrupt):
            adjoint(step, back, start(), N, SEED, slots=3, store=store, resume=tmp_path / "run")
        assert exact(adjoint(step, back, start(), N, SEED, slots=3, store=store, resume=tmp_path / "run"))


def test_a_store_that_dies_with_the_process_is_refused(tmp_path):
    for store in (Memory(), Disk(tmp_path / "d", run="mine")):
        with store, pytest.raises(ValueError, match="the store must outlive the process"):
            adjoint(advance, reverse, start(), N, SEED, slots=3, store=store, resume=tmp_path / "run")


class Flag:
    on = False


FLAG = Flag()


def breaking_back(x, a, i):
    if FLAG.on and i == 11:
        raise KeyboardInterrupt
    return reverse(x, a, i)


BASE = {"advance": advance, "reverse": breaking_back, "state": start(), "steps": N, "seed": SEED, "slots": 3}


def leave_behind(path, **changes):
    FLAG.on = True
    try:
        with pytest.raises(KeyboardInterrupt):
            adjoint(resume=path, **(BASE | changes))
    finally:
        FLAG.on = False


def scaled(x, i, scale=1.0):
    return advance(x, i) * scale


def with_closure(dt):
    def step(x, i):
        return advance(x, i) * dt

    return step


class Model:
    def __init__(self, dt):
        self.dt = dt

    def step(self, x, i):
        return advance(x, i) * self.dt

    __call__ = step


RATE = 1.0


def with_global(x, i):
    return advance(x, i) * RATE


def helper(x):
    return x * RATE


def with_helper(x, i):
    return advance(helper(x), i)


OTHERS = {
    "the code of advance": [{"advance": lambda x, i: advance(x, i) + 0}],
    "values of the initial state": [{"state": start(seed=3)}],
    "shapes and dtypes of the state": [
        {"state": start(8), "seed": np.ones(8)},
        {"state": start().astype(np.float32)},
        {"state": [start()]},
    ],
    "values of the seed": [{"seed": 2 * SEED}],
    "the code of seed": [{"seed": lambda x: SEED}],
    "slots=": [{"slots": 4}],
    "schedule=": [{"slots": None, "schedule": Revolve(N, 3)}],
    "memory=": [{"slots": None, "memory": "10MB"}],
    "steps=": [{"steps": N + 1}, {"steps": range(1, N + 1)}],
    "the code of steps": [{"steps": lambda x, i: i < N}],
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_call_is_refused_and_the_run_stays(tmp_path, name):
    path = tmp_path / "run"
    leave_behind(path)
    for changes in OTHERS[name]:
        with pytest.raises(ResumeError, match=r"is not this one: .*pebbling clean") as caught:
            adjoint(resume=path, **(BASE | changes))
        assert name in str(caught.value)
    assert exact(adjoint(resume=path, **BASE))
    assert not path.exists()


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (partial(scaled, scale=1.0), partial(scaled, scale=0.9), "arguments of advance"),
        (with_closure(1.0), with_closure(0.9), "dt in advance"),
        (with_closure(np.ones(7)), with_closure(np.full(7, 0.9)), "dt in advance"),
        (Model(1.0).step, Model(0.9).step, "self.dt in advance"),
        (Model(1.0), Model(0.9), "self.dt in advance"),
    ],
)
def test_other_values_that_the_code_uses_are_told_by_name(tmp_path, one, other, name):
    leave_behind(tmp_path / "run", advance=one)
    with pytest.raises(ResumeError, match=f"is not this one: {name} differs"):
        adjoint(resume=tmp_path / "run", **(BASE | {"advance": other}))
    assert adjoint(resume=tmp_path / "run", **(BASE | {"advance": one})).report.resumed_at


def test_globals_and_helpers_count(tmp_path, monkeypatch):
    for step in (with_global, with_helper):
        path = tmp_path / step.__name__
        leave_behind(path, advance=step)
        with monkeypatch.context() as patched:
            patched.setitem(step.__globals__, "RATE", 0.5)
            with pytest.raises(ResumeError, match=r"RATE in (advance|helper) differs"):
                adjoint(resume=path, **(BASE | {"advance": step}))
        if step is with_helper:
            with monkeypatch.context() as patched:
                patched.setitem(step.__globals__, "helper", lambda x: x * 2 * RATE)
                with pytest.raises(ResumeError, match="the code of helper in advance"):
                    adjoint(resume=path, **(BASE | {"advance": step}))
        assert adjoint(resume=path, **(BASE | {"advance": step})).report.resumed_at


def test_counters_logs_and_caches_do_not_count(tmp_path):
    calls, log, cache = 0, [], {}

    def step(x, i):
        nonlocal calls
        calls += 1
        log.append(i)
        cache[i] = calls
        return advance(x, i)

    leave_behind(tmp_path / "run", advance=step)
    assert calls
    assert log
    assert exact(adjoint(resume=tmp_path / "run", **(BASE | {"advance": step})))


def test_a_damaged_snapshot_in_the_journal_is_computed_again(tmp_path):
    for schedule in (Revolve(N, 4), Mixed(N, 4), StoreAll(N)):
        path = tmp_path / type(schedule).__name__
        leave_behind(path, slots=None, schedule=schedule)
        with Disk(path, run="resume", keep=True) as store:
            kept = [store._held.entries[key].slot for key in store.keys() if " step " in key]  # noqa: SIM118
        assert kept
        for slot in kept:
            os.truncate(path / f"pebbling-resume-{slot}.slot", 4100)
        assert exact(adjoint(resume=path, **(BASE | {"slots": None, "schedule": schedule})))


@pytest.mark.parametrize("lost", ["moment", "entry", "final"])
def test_a_commit_that_was_damaged_is_refused(tmp_path, lost):
    path = tmp_path / "run"
    leave_behind(path)
    with Disk(path, run="resume", keep=True) as store:
        (key,) = (key for key in store.keys() if lost in key)  # noqa: SIM118
        slot = store._held.entries[key].slot
    os.truncate(path / f"pebbling-resume-{slot}.slot", 4100)
    with pytest.raises(ResumeError, match=rf"can't go on: snapshot '.*{lost}.*' in .* is not what was written.* clean"):
        adjoint(resume=path, **BASE)
    clean(path)
    assert exact(adjoint(resume=path, **BASE))


def test_an_error_in_a_step_leaves_the_run_to_go_on(tmp_path):
    class Full(Exception):
        pass

    power = Power(-1)

    def step(x, i):
        if power.calls == -1 and i == 20:
            raise Full
        return advance(x, i)

    call = BASE | {"advance": step, "schedule": Staged(N, 5, 1), "slots": None}
    with Disk(tmp_path / "slow", run="slow", keep=True) as store:
        with pytest.raises(Full):
            adjoint(resume=tmp_path / "run", store=store, **call)
        assert store.keys()
        power.calls = -2
        result = adjoint(resume=tmp_path / "run", store=store, **call)
        assert exact(result)
        assert result.report.resumed_at
        assert store.keys() == []


def kills(*options):
    """Run the script that kills; how often it did, all runs having ended with the right bits and no files."""
    done = subprocess.run([sys.executable, KILLS, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (killed,) = re.findall(r"^(\d+) kills, 0 wrong results$", done.stdout, re.MULTILINE)
    return int(killed)


def test_killed_at_every_write():
    assert kills("--every-write", "--steps", "2", "--cases", "Revolve") > 100


def test_killed_at_some_writes_in_every_case():
    assert kills("--every-write", "--steps", "3", "--stride", "23") > 60


def test_killed_at_random_moments():
    assert kills("--kills", "20", "--steps", "12") == 20
