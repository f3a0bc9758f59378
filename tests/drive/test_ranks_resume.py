"""Runs over ranks that are killed go on together, from a commit that all of them made, with the same bits."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from drive_problems import advance, reverse, same, start, store_everything
from test_ranks import RANKS, on_ranks

from pebbling import PebblingError, ResumeError, adjoint

N, SEED = 25, np.ones(7)
KILLS = Path(__file__).parents[2] / "benchmarks" / "kills_ranks.py"
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"


def want(rank):
    return store_everything(advance, reverse, start(seed=rank), range(N), SEED)


class Trouble:
    """What is no part of a run's identity: whether its steps fail."""

    on = False


def test_any_rank_killed_at_any_moment():
    """In a process of its own, since ranks are forked; benchmarks/results has the same with more kills."""
    done = subprocess.run(
        [sys.executable, str(KILLS), "--kills", "8", "--case", "memory and a disk"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs, kills = map(int, re.search(r"in all \| \| (\d+) \| (\d+)", done.stdout).groups())
    assert runs >= 1
    assert kills >= 8


def test_each_rank_has_a_folder_and_all_go_on_from_the_same_step(tmp_path, monkeypatch):
    """Rank 1 fails near the end of the sweep; when called again, every rank comes back at the same action."""

    def run(rank, comm):
        def step(x, i):
            if any(comm.allgather(Trouble.on and rank == 1 and i == N - 2)):
                raise RuntimeError("the node is gone")
            return advance(x, i)

        return adjoint(step, reverse, start(seed=rank), N, SEED, slots=3, comm=comm, resume=tmp_path)

    monkeypatch.setattr(Trouble, "on", True)
    assert all("the node is gone" in str(error) for error in on_ranks(run))
    monkeypatch.setattr(Trouble, "on", False)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [f"rank {rank}" for rank in range(RANKS)]
    found = on_ranks(run)
    assert all(same((result.state, result.adjoint), want(rank)) for rank, result in enumerate(found))
    assert len({result.report.resumed_at for result in found}) == 1
    assert not list(tmp_path.iterdir())


def test_a_rank_that_lost_its_folder_makes_all_begin_anew(tmp_path, monkeypatch):
    def run(rank, comm):
        def step(x, i):
            if Trouble.on and i == N - 2:
                raise RuntimeError("stop")
            return advance(x, i)

        return adjoint(step, reverse, start(seed=rank), N, SEED, slots=3, comm=comm, resume=tmp_path)

    monkeypatch.setattr(Trouble, "on", True)
    assert all("stop" in str(error) for error in on_ranks(run))
    shutil.rmtree(tmp_path / "rank 1")
    monkeypatch.setattr(Trouble, "on", False)
    found = on_ranks(run)
    assert all(same((result.state, result.adjoint), want(rank)) for rank, result in enumerate(found))
    assert {result.report.resumed_at for result in found} == {None}


def test_another_call_on_one_rank_is_heard_of_on_all(tmp_path):
    def run(rank, comm, state, last):
        def step(x, i):
            if i == last:
                raise RuntimeError("stop")
            return advance(x, i)

        return adjoint(step, reverse, state, N, SEED, slots=3, comm=comm, resume=tmp_path)

    on_ranks(lambda rank, comm: run(rank, comm, start(seed=rank), N - 2))
    found = on_ranks(lambda rank, comm: run(rank, comm, start(seed=rank + 5 * (rank == 1)), N - 2))
    assert [type(error) for error in found] == [PebblingError, ResumeError, PebblingError]
    assert "values of the initial state" in str(found[1])
    assert all("rank 1 failed in reading the journal" in str(found[rank]) for rank in (0, 2))


def test_an_error_in_one_rank_s_step_ends_all_with_that_error(tmp_path):
    """Rank 1 raises while rank 0 waits for it in a collective; the program is run without ``-m mpi4py``."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "from mpi4py import MPI\n"
        "import numpy as np, pebbling as pb\n"
        "comm = MPI.COMM_WORLD\n"
        "def step(x, i):\n"
        "    if comm.Get_rank() == 1 and i == 3:\n"
        "        raise ValueError('the pressure is negative')\n"
        "    comm.Barrier()\n"
        "    return x + 1\n"
        "pb.adjoint(step, lambda x, a, i: a, np.zeros(3), 9, np.ones(3), slots=3, comm=comm)\n"
    )
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, str(program)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode != 0
    assert "ValueError: the pressure is negative" in done.stdout + done.stderr
    assert "rank 1 ends all 2 ranks" in done.stdout + done.stderr
