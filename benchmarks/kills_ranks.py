"""Runs over ranks that are killed go on together with the same bits: one rank gets SIGKILL, the others a little later.

    python benchmarks/kills_ranks.py --kills 100 --ranks 2 --ranks 3
    python benchmarks/kills_ranks.py --kills 100 --save FILE           the table in a file

Ranks are forked processes that meet through pipes. Every step is a meeting, so ranks that replay different steps
hang or fail. A run commits whenever it can. One rank, chosen at random, is killed at a random moment; the others
live for up to 20 ms more, and are then killed, as a cluster does. The same call is made again, until it comes to its
end on every rank; each must then have the bits of a run that stored everything. The exit status says whether all was
well.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import random
import signal
import struct
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from datetime import date
from pathlib import Path

import numpy as np

from pebbling import tree
from pebbling.chain import Hierarchical, Tier
from pebbling.drive import adjoint, ranks_journal
from pebbling.store import Disk, files

N = 25


class NoWaiting:
    """The system, but for waiting for the disk: processes are killed here, not machines."""

    def __getattr__(self, name):
        return (lambda descriptor: None) if name in ("fsync", "fdatasync") else getattr(os, name)


def first_state(rank):
    return {"x": np.random.default_rng(rank).random(50), "rng": np.random.default_rng(2)}


def step(state, i):
    x = 3.7 * state["x"] * (1 - state["x"]) * 0.99 + 1e-3 * state["rng"].random(50)
    return {"x": x, "rng": state["rng"]}


def back(state, adjoint, i):
    return 3.7 * (1 - 2 * state["x"]) * 0.99 * adjoint


CASES = {
    "slots": {"steps": N, "slots": 3},
    "unknown length": {"steps": lambda state, i: i < N, "slots": 3},
    "memory and a disk": {"steps": N, "schedule": Hierarchical(N, [Tier(2), Tier(4)])},
}


def want(rank):
    states = [first_state(rank)]
    for i in range(N):
        states.append(step(tree.copy(states[-1]), i))
    found = np.ones(50)
    for i in reversed(range(N)):
        found = back(states[i], found, i)
    return states[-1]["x"].tobytes(), found.tobytes()


class PipeComm:
    """The part of a communicator of mpi4py that runs need; rank 0 collects and sends around."""

    def __init__(self, rank, pipes):
        self._rank, self._pipes = rank, pipes

    def Get_rank(self):
        return self._rank

    def Get_size(self):
        return len(self._pipes)

    def allgather(self, value):
        if self._rank:
            _send(self._pipes[self._rank][1], value)
            return _receive(self._pipes[self._rank][2])
        found = [value, *[_receive(up) for up, _, _, _ in self._pipes[1:]]]
        for _, _, _, down in self._pipes[1:]:
            _send(down, found)
        return found


def _send(descriptor, value):
    content = pickle.dumps(value)
    content = struct.pack("<q", len(content)) + content
    while content:
        content = content[os.write(descriptor, content) :]


def _receive(descriptor):
    (size,) = struct.unpack("<q", _read(descriptor, 8))
    return pickle.loads(_read(descriptor, size))


def _read(descriptor, size):
    content = b""
    while len(content) < size:
        piece = os.read(descriptor, size - len(content))
        if not piece:
            os._exit(3)  # the others are gone
        content += piece
    return content


def run_ranks(ranks, work, kill=None, timeout=60.0):
    """Fork ``work(rank, comm)`` for each rank; the exit statuses.

    ``kill`` is ``(rank, seconds, more)``: who is killed when, and how long the others live after it.
    """
    pipes = [(*os.pipe(), *os.pipe()) for _ in range(ranks)]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            status = 1
            try:
                # Ends of other ranks stay open only in rank 0, which hears of a death by its parent.
                work(rank, PipeComm(rank, pipes))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    try:
        if kill is not None:
            rank, seconds, more = kill
            time.sleep(seconds)
            _kill(children[rank])
            time.sleep(more)
            for child in children:
                _kill(child)
        return _statuses(children, timeout)
    finally:
        for descriptors in pipes:
            for descriptor in descriptors:
                os.close(descriptor)


def _kill(child):
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _statuses(children, timeout):
    found, end = {}, time.monotonic() + timeout
    while len(found) < len(children):
        for rank, child in enumerate(children):
            if rank not in found:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    found[rank] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            for child in children:
                _kill(child)
            raise TimeoutError(f"ranks did not end: {found}")
        time.sleep(0.002)
    return [found[rank] for rank in range(len(children))]


def rank_of(folder, name, rank, comm):
    """One rank of one run."""

    def met(state, i):
        assert len(set(comm.allgather(i))) == 1
        time.sleep(5e-4)
        return step(state, i)

    store = Disk(folder / f"store {rank}") if "disk" in name else None
    # Every case is a call of its own, and each rank's state is its own.
    found = adjoint(
        met, back, first_state(rank), seed=np.ones(50), comm=comm, resume=folder / "run", store=store, **CASES[name]
    )
    assert (found.state["x"].tobytes(), found.adjoint.tobytes()) == want(rank), "another bit"
    (folder / f"result {rank}").write_text(str(found.report.resumed_at))


def killed_until_done(ranks, name, generator, longest):
    """Run and kill, again and again, until a run comes to its end; the kills, and whether it went on from a commit."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for kills in range(1000):
            kill = generator.randrange(ranks), generator.uniform(0.0, longest), generator.choice([0.0, 0.002, 0.02])
            statuses = run_ranks(ranks, lambda rank, comm: rank_of(folder, name, rank, comm), kill)
            if any(status not in (0, 3, -signal.SIGKILL) for status in statuses):
                raise AssertionError(f"{name}: a rank ended with {statuses}")
            if len(list(folder.glob("result *"))) == ranks:
                return kills, statuses == [0] * ranks and any((folder / "run").glob("rank *"))
            longest *= 1.07  # a busy machine takes longer to get to where the last one was
    raise AssertionError(f"{name} never came to its end")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="at least so many, over all cases")
    parser.add_argument("--ranks", type=int, action="append", default=[])
    parser.add_argument("--case", choices=CASES, action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save")
    options = parser.parse_args()
    files.system = NoWaiting()
    ranks_journal._SHARE = 0
    generator = random.Random(options.seed)
    kinds = [(name, ranks) for name in options.case or CASES for ranks in options.ranks or [2]]
    kills, runs, leftovers = (dict.fromkeys(kinds, 0) for _ in range(3))
    while sum(kills.values()) < options.kills or not all(runs.values()):
        for name, ranks in kinds:
            killed, left = killed_until_done(ranks, name, generator, 0.2)
            kills[name, ranks] += killed
            leftovers[name, ranks] += left
            runs[name, ranks] += 1
    told = " ".join(word for word in sys.argv[1:] if word not in ("--save", options.save))
    lines = [
        f"# Killed runs over ranks, {date.today()}",
        "",
        f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, shared with other work. "
        f"`python benchmarks/{Path(__file__).name} {told}`. Every run ended with the bits of storing "
        "everything on every rank.",
        "",
        "| run | ranks | runs to their end | kills | journals left behind |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {ranks} | {runs[name, ranks]} | {kills[name, ranks]} | {leftovers[name, ranks]} |"
            for name, ranks in kinds
        ),
        f"| in all | | {sum(runs.values())} | {sum(kills.values())} | {sum(leftovers.values())} |",
    ]
    print("\n".join(lines))
    if options.save:
        Path(options.save).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
