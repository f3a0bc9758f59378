"""Several processes, one plan: what must be equal on every rank before collectives inside a step are safe.

What a rank does on its own between two points at which all of them meet is done ``together``: if it
fails on one of them, all of them hear of it and raise, since a rank that went on alone would wait
for the others forever. Errors in the user's own code are not passed on: the others may be waiting
inside that code. But where nobody catches such an error, and Python ends this rank for it, it ends all of them.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import CorruptSnapshot, PebblingError


@contextmanager
def together(comm: Any, doing: str) -> Iterator[None]:
    """Raise on every rank what goes wrong on one of them; damaged snapshots as such, so that all can recover."""
    if comm is None:
        yield
        return
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        error = caught
    told = comm.allgather(None if error is None else (isinstance(error, CorruptSnapshot), _in_words(error)))
    failed = {rank: words for rank, words in enumerate(told) if words is not None}
    damaged = all(is_damage for is_damage, _ in failed.values())
    if error is not None and (damaged or not isinstance(error, CorruptSnapshot)):
        raise error
    if failed:
        rank, (_, words) = next((rank, found) for rank, found in failed.items() if found[0] == damaged)
        kind = CorruptSnapshot if damaged else PebblingError
        raise kind(f"rank {rank} failed in {doing}: {words}")


_READ = 0.5
"""Seconds that a launcher has to read an error before its ranks end."""


@contextmanager
def ending_together(comm: Any) -> Iterator[None]:
    """Have an error that leaves this block, and that nobody catches, end all ranks: they would wait for this one."""
    try:
        yield
    except BaseException as error:
        if hasattr(comm, "Abort") and comm.Get_size() > 1 and threading.current_thread() is threading.main_thread():
            _abort_unless_caught(comm, error)
        raise


def _abort_unless_caught(comm: Any, error: BaseException) -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], uncaught: BaseException, trace: Any) -> None:
        before(kind, uncaught, trace)
        if error in _chain(uncaught):
            sys.stderr.write(f"pebbling: rank {comm.Get_rank()} ends all {comm.Get_size()} ranks for this error\n")
            sys.stderr.flush()
            # The launcher ends with the ranks, and may not have read what this one wrote.
            time.sleep(_READ)
            comm.Abort(1)

    sys.excepthook = hook


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and those it came from."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def agree(comm: Any, what: str, value: Any) -> None:
    """Raise on every rank unless ``value`` prints the same on all of them."""
    if comm is None:
        return
    digest = hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
    digests = comm.allgather(digest)
    if len(set(digests)) > 1:
        groups = {found: [rank for rank, other in enumerate(digests) if other == found] for found in digests}
        mine = value if len(repr(value)) < 200 else digest
        raise PebblingError(
            f"{what} differs between ranks {list(groups.values())}; rank {comm.Get_rank()} has {mine!r}. "
            "Collectives inside a step would hang: give every rank the same"
        )


def smallest(comm: Any, value: int) -> int:
    """The smallest value of all ranks."""
    return value if comm is None else min(comm.allgather(value))


def largest(comm: Any, value: float) -> float:
    """The largest value of all ranks."""
    return value if comm is None else max(comm.allgather(value))
