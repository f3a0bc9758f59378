"""Runs that are killed go on with the same bits: SIGKILL at random moments, or at every single write.

    python benchmarks/kills.py --kills 200              at random moments, over all cases
    python benchmarks/kills.py --every-write            at each system call that changes a file
    python benchmarks/kills.py --kills 250 --save FILE  both, as a table in a file

A run is a forked child. It is killed, and the same call is made again in the next child, until one
comes to its end; its final state and adjoint must then be those of a run that stored everything,
and its directories must be gone. Prints a table; the exit status says whether all was well.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

from pebbling import tree
from pebbling.chain import Hierarchical, Mixed, Periodic, Staged, StoreAll, Tier
from pebbling.drive import adjoint, journal
from pebbling.store import Disk, files

CHANGES = {"open", "pwritev", "fsync", "fdatasync", "replace", "unlink", "mkdir", "rmdir", "ftruncate"}
CHANGES |= {"truncate", "posix_fallocate", "link"}
SWEEP, BACK = range(2)


def first_state():
    return {"x": np.random.default_rng(1).random(50), "rng": np.random.default_rng(2), "count": 0}


def step(state, i):
    x = 3.7 * state["x"] * (1 - state["x"]) * 0.99 + 1e-3 * state["rng"].random(50)
    return {"x": x, "rng": state["rng"], "count": state["count"] + 1}


def back(state, adjoint, i):
    assert state["count"] == i
    return 3.7 * (1 - 2 * state["x"]) * 0.99 * adjoint


def cases(n):
    """What is called, by name; ``slow`` says that a kept disk store takes the slow tier."""
    return {
        "Revolve": {"steps": n, "slots": 3},
        "StoreAll": {"steps": n, "schedule": StoreAll(n)},
        "Mixed": {"steps": n, "schedule": Mixed(n, 3)},
        "Periodic": {"steps": n, "schedule": Periodic(n, 3)},
        "predicate": {"steps": lambda state, i: i < n, "slots": 3},
        "bytes": {"steps": n, "memory": 240_000},
        "verify all": {"steps": n, "slots": 2, "verify": "all"},
        "disk": {"steps": n, "slots": 3, "slow": True},
        "disk beside the journal": {"steps": n, "slots": 3, "slow": "resume"},
        "Staged on disk": {"steps": n, "schedule": Staged(n, max(2, n // 4), 2), "slow": True},
        "Hierarchical on disk": {
            "steps": n,
            "schedule": Hierarchical(n, [Tier(1), Tier(3, 0.5, 0.5)]),
            "slow": True,
        },
    }


def expected(n):
    """The digest of what a run that stores everything gives."""
    states, state = [], tree.copy(first_state())
    for i in range(n):
        states.append(tree.copy(state))
        state = step(state, i)
    adjoint = np.ones(50)
    for i in reversed(range(n)):
        adjoint = back(states[i], adjoint, i)
    return tree.fingerprint((state, adjoint))


class Board:
    """What a child tells its parent while it lives: phase, commits, and at last the digest of its result."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 128)

    def tell(self, phase=None, commits=None, digest=None, calls=None):
        for offset, value in ((0, phase), (8, commits), (16, calls)):
            if value is not None:
                struct.pack_into("q", self._memory, offset, value)
        if digest is not None:
            self._memory[32:64] = digest.encode()

    phase = property(lambda self: struct.unpack_from("q", self._memory, 0)[0])
    commits = property(lambda self: struct.unpack_from("q", self._memory, 8)[0])
    calls = property(lambda self: struct.unpack_from("q", self._memory, 16)[0])

    @property
    def digest(self):
        return self._memory[32:64].decode().strip("\0")

    def wipe(self):
        self._memory[:] = bytes(128)


class Deadly:
    """``os``, whose ``at``-th call that changes a file is the last of the process; a write is half done then."""

    def __init__(self, at, board):
        self._at, self._board, self._calls = at, board, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CHANGES:
            return real

        def call(*arguments, **named):
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*arguments)
            self._calls += 1
            self._board.tell(calls=self._calls)
            if self._calls == self._at:
                if name == "pwritev":
                    descriptor, buffers, offset = arguments
                    content = b"".join(bytes(buffer) for buffer in buffers)
                    os.pwrite(descriptor, content[: len(content) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            # What a power failure would leave is tested with the stores; here waiting for the disk only takes time.
            return None if name in ("fsync", "fdatasync") else real(*arguments, **named)

        return call


def child(call, path, board, pause, at):
    """One attempt, in a process of its own; the process id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        files.system = Deadly(at, board)
        commit = journal.Journal.commit

        def counted(self, run):
            commit(self, run)
            board.tell(commits=board.commits + 1)

        journal.Journal.commit = counted
        call = dict(call)
        where = call.pop("slow", False)
        slow = Disk(path / "slow", run="slow", keep=True) if where is True else Disk(path / where) if where else None

        def forward(state, i):
            time.sleep(pause)
            return step(state, i)

        def backward(state, adjoint, i):
            board.tell(phase=BACK)
            time.sleep(pause)
            return back(state, adjoint, i)

        result = adjoint(forward, backward, first_state(), seed=np.ones(50), resume=path / "resume", store=slow, **call)
        if slow is not None:
            slow.keep = False
            slow.close()
        board.tell(digest=tree.fingerprint((result.state, result.adjoint)))
        status = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def wait(process):
    """Whether a child came to its end, and was not killed."""
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    return True


def left(path):
    """Whether there are files in a directory; empty directories made by a process that was killed may stay."""
    return any(not found.is_dir() for found in path.rglob("*"))


def at_random(name, call, n, kills, seed, pause):
    """Kill a case so many times at random moments; how often in each phase, and how many runs came to their end."""
    generator, board, want = random.Random(seed), Board(), expected(n)
    counts = {"sweep": 0, "way back": 0, "runs": 0, "commits": 0, "wrong": 0}
    whole = 4 * n * pause
    while counts["sweep"] + counts["way back"] < kills:
        path = Path(tempfile.mkdtemp(prefix="kills-"))
        finished = False
        while not finished:
            board.wipe()
            process = child(call, path, board, pause, 0)
            if counts["sweep"] + counts["way back"] < kills:
                time.sleep(generator.uniform(0, whole))
                os.kill(process, signal.SIGKILL)
            finished = wait(process)
            counts["commits"] += board.commits
            if not finished:
                counts["way back" if board.phase == BACK else "sweep"] += 1
        counts["runs"] += 1
        counts["wrong"] += board.digest != want or left(path)
        shutil.rmtree(path)
    return counts


def at_every_write(name, call, n, stride):
    """Kill a case at every call that changes a file; how many there are."""
    board, want = Board(), expected(n)
    counts = {"sweep": 0, "way back": 0, "runs": 0, "commits": 0, "wrong": 0}
    at = 1
    while True:
        path = Path(tempfile.mkdtemp(prefix="kills-"))
        board.wipe()
        finished = wait(child(call, path, board, 0.0, at))
        counts["commits"] += board.commits
        if not finished:
            counts["way back" if board.phase == BACK else "sweep"] += 1
            board.wipe()
            wait(child(call, path, board, 0.0, 0))
        counts["runs"] += 1
        counts["wrong"] += board.digest != want or left(path)
        shutil.rmtree(path)
        if finished:
            return counts
        at += stride


HEAD = (
    "| case | killed in the sweep | on the way back | commits | runs that ended | wrong |",
    "|---|---|---|---|---|---|",
)


def part(every_write, n, stride, kills, seed, names):
    """One table: its lines, how many kills there were, and how many wrong results."""
    journal._GLANCE = 0.0
    journal._SHARE = 0 if every_write else 3
    chosen = {name: call for name, call in cases(n).items() if not names or name in names}
    lines, killed, wrong = list(HEAD), 0, 0
    print("\n".join(HEAD))
    for number, (name, call) in enumerate(chosen.items()):
        if every_write:
            counts = at_every_write(name, call, n, stride)
        else:
            share = kills // len(chosen) + (number < kills % len(chosen))
            counts = at_random(name, call, n, share, seed + number, 2e-3)
        lines.append("| {} | {sweep} | {way back} | {commits} | {runs} | {wrong} |".format(name, **counts))
        print(lines[-1], flush=True)
        wrong += counts["wrong"]
        killed += counts["sweep"] + counts["way back"]
    lines += ["", f"{killed} kills, {wrong} wrong results"]
    print("\n".join(lines[-2:]), flush=True)
    return lines, killed, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kills in all, at random moments")
    parser.add_argument("--every-write", action="store_true", help="kill at every system call that changes a file")
    parser.add_argument("--stride", type=int, default=1, help="only every so many-th of them")
    parser.add_argument("--cases", nargs="*", help="only these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--save", type=Path, help="write a table of both kinds of kills as Markdown")
    options = parser.parse_args()
    text, wrong = [f"# Killed runs, {date.today()}", "", f"Python {platform.python_version()}, {platform.system()}."], 0
    for every_write in (False, True) if options.save else (options.every_write,):
        n = options.steps or (3 if every_write else 24)
        lines, _, found = part(every_write, n, options.stride, options.kills, options.seed, options.cases)
        wrong += found
        where = "at every system call that changes a file, half of a write done" if every_write else "at random moments"
        text += ["", f"## SIGKILL {where}, {n} steps", "", *lines]
    if options.save:
        options.save.write_text("\n".join(text) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
