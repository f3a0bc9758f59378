"""Adjoint runs on a Dask cluster whose workers are killed."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from distributed import Client, LocalCluster

import pebbling as pb
from pebbling.adapters.dask import adjoints

STEPS, SHOTS = 60, 4


def survey(slots=None, killed=None):
    """A function of one shot; workers get all of it, and import nothing.

    With ``killed``, a folder, the worker of each odd shot is killed half-way back, the first time.
    """
    steps = STEPS

    def kill_once(number):
        if killed is not None and number % 2:
            try:
                os.close(os.open(f"{killed}/killed {number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def shot(number):
        def advance(u, i):
            return u + 0.01 * np.sin(u * (1 + number))

        def reverse(u, a, i):
            if i == steps // 2:
                kill_once(number)
            return a * (1 + 0.01 * (1 + number) * np.cos(u * (1 + number)))

        start = np.linspace(0, 1 + number, 2000)
        given = {"advance": advance, "reverse": reverse, "state": start, "steps": steps, "seed": np.ones(2000)}
        return given if slots is None else {**given, "slots": slots}

    return shot


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address=None) as cluster,
        Client(cluster) as found,
    ):
        yield found


def test_killed_workers_leave_what_the_next_ones_go_on_from(client, tmp_path):
    futures = adjoints(client, survey(4, str(tmp_path)), range(SHOTS), scratch=tmp_path, run="survey")
    results = [future.result(timeout=240) for future in futures]
    assert len(list(tmp_path.glob("killed *"))) == SHOTS // 2
    for number, result in enumerate(results):
        want = pb.adjoint(**survey()(number), schedule=pb.StoreAll(STEPS))
        assert result.adjoint.tobytes() == want.adjoint.tobytes()
        assert result.state.tobytes() == want.state.tobytes()
    # A result that was lost with a worker is computed again from the start, but not the last one that was killed.
    assert any(result.report.resumed_at is not None for result in results)
    assert not list((tmp_path / "survey").glob("*"))


def test_the_budget_is_a_share_of_the_worker_s_memory(client, tmp_path):
    (result,) = [future.result(timeout=240) for future in adjoints(client, survey(), [1], scratch=tmp_path)]
    assert result.report.schedule == f"StoreAll(steps={STEPS})"
    refused = adjoints(client, survey(), [1], scratch=tmp_path, share=1e-5, retries=0)
    with pytest.raises(pb.BudgetError, match="the smallest budget is"):
        refused[0].result(timeout=240)


def test_refusals(client, tmp_path):
    with pytest.raises(TypeError, match=r"gives the arguments of pb\.adjoint as a dict"):
        adjoints(client, lambda item: None, [1], scratch=tmp_path, retries=0)[0].result(timeout=240)
    with pytest.raises(ValueError, match="run is a plain name"):
        adjoints(client, survey(), [1], scratch=tmp_path, run="../survey")
    with pytest.raises(ValueError, match="share is a part"):
        adjoints(client, survey(), [1], scratch=tmp_path, share=2)
