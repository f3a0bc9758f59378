"""Branch and cut in a process of its own: a solver that dies or hangs costs an answer and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pebbling.graph import apart, highs
from pebbling.graph.apart import Apart
from pebbling.graph.linear import Programme


def programme(name):
    """One that was met in practice, without what planning notes beside it."""
    arrays = np.load(Path(__file__).parent / "programmes" / f"{name}.npz")
    nothing = np.zeros((1, 0), np.int64)
    return Programme(**arrays, alive=nothing, away=nothing, points=(0,))


@pytest.fixture
def another():
    process = Apart()
    yield process
    process.stop()


def test_a_call_runs_in_one_other_process(another):
    first, second = (another.call(os.getpid, seconds=60.0) for _ in range(2))
    assert first == second != os.getpid()


def test_a_process_that_dies_costs_an_answer_and_is_replaced(another):
    first = another.call(os.getpid, seconds=60.0)
    assert another.call(os.abort, seconds=60.0) is None
    second = another.call(os.getpid, seconds=60.0)
    assert second not in (None, first, os.getpid())


def test_a_process_that_hangs_is_ended(another, monkeypatch):
    first = another.call(os.getpid, seconds=60.0)
    monkeypatch.setattr(apart, "_GRACE", 0.2)
    begun = time.monotonic()
    assert another.call(time.sleep, 3600.0, seconds=0.1) is None
    assert time.monotonic() - begun < 60.0
    monkeypatch.undo()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert another.call(os.getpid, seconds=60.0) not in (None, first)


def test_where_no_process_can_be_started_there_is_no_answer(another, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    assert another.call(os.getpid, seconds=60.0) is None


def test_errors_come_back(another):
    with pytest.raises(ZeroDivisionError):
        another.call(divmod, 1, 0, seconds=60.0)


def test_it_ends_with_the_process_that_started_it():
    program = (
        "import os; from pebbling.graph.apart import aside; print(aside.call(os.getpid, seconds=60.0), flush=True); "
        "os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    child = int(ended.stdout)
    for _ in range(300):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("the second process is still there")


def test_a_programme_that_takes_highs_down_has_an_answer():
    answer = highs.whole(programme("takes_highs_down"), 60.0, 0, 100)
    assert answer.bound == pytest.approx(0.42925, abs=1e-4)
    assert not answer.infeasible


def test_a_programme_that_hangs_highs_ends_with_its_time():
    highs.relaxed(programme("takes_highs_down"), 60.0, 0)
    begun = time.monotonic()
    answer = highs.relaxed(programme("hangs_highs"), 0.5, 0)
    assert time.monotonic() - begun < 30.0
    assert not answer.infeasible


def test_without_an_answer_there_is_no_bound(monkeypatch):
    monkeypatch.setattr(highs.aside, "call", lambda *_, **__: None)
    problem = SimpleNamespace(price=np.zeros(1), limit=np.zeros(1))
    answer = highs.whole(problem, 1.0, 0, 100)
    assert answer.values is None
    assert answer.bound == -np.inf
    assert not answer.infeasible
