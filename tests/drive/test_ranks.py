"""Ranks that run one plan: what fails on one of them is heard of on all, and none waits for the others forever."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from drive_problems import advance, reverse, same, start, store_everything, written

from pebbling import PebblingError, StoreError, StoreFull, adjoint
from pebbling.chain import Periodic, Revolve, Staged
from pebbling.store import Disk, Memory, Mock

RANKS, N = 3, 12
SEED = np.ones(7)


class Comm:
    """Ranks as threads. A rank that does not come to a meeting breaks it up for all, instead of letting them wait."""

    def __init__(self, rank, meeting, board):
        self._rank, self._meeting, self._board = rank, meeting, board

    def Get_rank(self):
        return self._rank

    def allgather(self, value):
        self._board[self._rank] = value
        self._meeting.wait(20)
        found = list(self._board)
        self._meeting.wait(20)
        return found


def on_ranks(run):
    """What ``run(rank, comm)`` returns or raises on every rank."""
    meeting, board, found = threading.Barrier(RANKS), [None] * RANKS, [None] * RANKS

    def one(rank):
        try:
            found[rank] = run(rank, Comm(rank, meeting, board))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def step_of(comm):
    """A step with a meeting in it: ranks must take the same steps in the same order."""

    def step(x, i):
        assert comm.allgather(("step", i)) == [("step", i)] * RANKS
        return advance(x, i)

    return step


def want(rank):
    return store_everything(advance, reverse, start(seed=rank), range(N), SEED)


def assert_exact(found):
    for rank, result in enumerate(found):
        assert same((result.state, result.adjoint), want(rank)), result


def assert_refused(found, kind, words):
    """Rank 1 raises its own error, and the others one that names it."""
    for rank, error in enumerate(found):
        if rank == 1:
            assert isinstance(error, kind)
            assert words in str(error)
        else:
            assert type(error) is PebblingError
            assert "rank 1 failed in" in str(error)
            assert words in str(error)


@pytest.mark.parametrize("steps", [N, lambda x, i: i < N])
@pytest.mark.parametrize("make", [lambda: None, Memory])
def test_every_rank_gets_its_gradient(steps, make):
    def run(rank, comm):
        return adjoint(step_of(comm), reverse, start(seed=rank), steps, SEED, slots=3, comm=comm, store=make())

    assert_exact(on_ranks(run))


WRONG = {
    "slots must": {"slots": 0},
    "verify must be": {"slots": 3, "verify": "maybe"},
    "at most one of": {"slots": 3, "memory": "1MB"},
    "the schedule is for 5 steps": {"schedule": Periodic(5, 2)},
    "expected bytes": {"memory": "much"},
    "steps must": {"slots": 3, "steps": -1},
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_argument_on_one_rank(words):
    wrong = WRONG[words]
    kind = "memory" if words == "expected bytes" else "schedule" if "schedule" in words else "slots"
    right = {"steps": N, kind: {"memory": "1MB", "schedule": Periodic(N, 3), "slots": 3}[kind]}

    def run(rank, comm):
        options = {"steps": N} | wrong if rank == 1 else right
        return adjoint(step_of(comm), reverse, start(), seed=SEED, comm=comm, **options)

    assert_refused(on_ranks(run), ValueError, words)


DIFFERENT = {
    "memory=": {"memory": "1MB"},
    "a predicate": {"slots": 3, "steps": lambda x, i: i < N},
    "a store": {"slots": 3, "store": Memory()},
    "verify='all'": {"slots": 3, "verify": "all"},
    "no budget": {},
}


@pytest.mark.parametrize("words", DIFFERENT)
def test_calls_that_differ(words):
    def run(rank, comm):
        options = {"steps": N} | (DIFFERENT[words] if rank == 1 else {"slots": 3})
        return adjoint(step_of(comm), reverse, start(), seed=SEED, comm=comm, **options)

    found = on_ranks(run)
    for rank, error in enumerate(found):
        assert isinstance(error, PebblingError)
        assert "the call differs between ranks [[0, 2], [1]]" in str(error)
        assert (words in str(error)) == (rank == 1)


def test_loops_that_end_at_different_steps():
    def run(rank, comm):
        return adjoint(step_of(comm), reverse, start(), lambda x, i: i < N - (rank == 1), SEED, slots=3, comm=comm)

    for error in on_ranks(run):
        assert isinstance(error, PebblingError)
        assert f"whether the loop goes on at step {N - 1} differs" in str(error)


def test_no_room_in_the_store_of_one_rank():
    def run(rank, comm):
        store = Mock(limit=100 if rank == 1 else None)
        return adjoint(step_of(comm), reverse, start(), N, SEED, slots=3, comm=comm, store=store)

    assert_refused(on_ranks(run), StoreFull, "this store holds 100 B")


@pytest.mark.parametrize("at", [1, 2, 3, 4, 6, 8, 10])
def test_a_store_that_fails_on_one_rank(at):
    """Its errors come from the background, at whichever call is the next; in the last one all runs are over."""

    def run(rank, comm):
        store = Mock(fail_at=at if rank == 1 else (), error=StoreFull)
        return adjoint(
            step_of(comm), reverse, start(seed=rank), N, SEED, schedule=Revolve(N, 3), comm=comm, store=store
        )

    found = on_ranks(run)
    if isinstance(found[0], Exception):
        assert_refused(found, StoreFull, "as it was told to")
    else:
        assert isinstance(found[1], StoreError)


@pytest.mark.parametrize("schedule", [Revolve(N, 3), Staged(N, 4, 1)])
def test_a_damaged_snapshot_on_one_rank_is_computed_again_on_all(tmp_path, schedule):
    def run(rank, comm):
        def back(x, a, i):
            if i == 8 and rank == 1:
                written(store)
                for file in (tmp_path / "1").glob("*.slot"):
                    os.truncate(file, 4100)
            return reverse(x, a, i)

        with Disk(tmp_path / str(rank)) as store:
            return adjoint(step_of(comm), back, start(seed=rank), N, SEED, schedule=schedule, comm=comm, store=store)

    found = on_ranks(run)
    assert_exact(found)
    assert len({result.report.recovered for result in found}) == 1
    assert found[0].report.recovered >= 1


def test_silent_damage_on_one_rank_is_noticed_on_all():
    def run(rank, comm):
        def back(x, a, i):
            if i == N - 1 and rank == 1:
                store.corrupt = set(store.keys())
            return reverse(x, a, i)

        with Mock() as store:
            return adjoint(
                step_of(comm), back, start(seed=rank), N, SEED, slots=3, comm=comm, store=store, verify="all"
            )

    found = on_ranks(run)
    assert_exact(found)
    assert {result.report.recovered for result in found} == {found[0].report.recovered}
    assert found[0].report.recovered >= 1
