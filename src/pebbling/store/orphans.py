"""What dead runs left in a directory: listed on demand, removed on demand, never trusted, never touched otherwise."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import StoreError
from . import files
from .directory import lock_file, owned
from .journal import head
from .lock import Lock, holder


class Orphan(NamedTuple):
    """A file of a run that is over."""

    path: str
    run: str
    nbytes: int
    resumable: bool
    """Whether the run meant its snapshots to be found again."""


def orphans(path: str | os.PathLike[str]) -> list[Orphan]:
    """The files that dead runs left in a directory; those of a live store are not among them."""
    directory = os.path.abspath(os.fspath(path))
    if not os.path.isdir(directory):
        raise StoreError(f"{directory} is not a directory")
    live = holder(directory)
    found = [file for file in owned(directory) if live is None or file.run != live.get("run")]
    kept = {file.run for file in found if file.number is None and _kept(file.path)}
    listed = [Orphan(file.path, file.run, os.path.getsize(file.path), file.run in kept) for file in found]
    lock = lock_file(directory)
    if live is None and os.path.exists(lock):
        listed.append(Orphan(lock, "", os.path.getsize(lock), False))
    return listed


def clean(path: str | os.PathLike[str], run: str | None = None) -> list[Orphan]:
    """Remove what dead runs left in a directory, or one of them; what was removed.

    Refuses while a live store has the directory, with a ``StoreError`` that says whose it is.
    """
    directory = os.path.abspath(os.fspath(path))
    listed = [orphan for orphan in orphans(directory) if run is None or orphan.run == run]
    lock = Lock(directory, "clean")
    try:
        for orphan in listed:
            if orphan.path != lock.path:
                files.remove(orphan.path)
    except OSError as error:
        raise files.failure(error, "cleaning", directory) from error
    finally:
        lock.release()
    return listed


def _kept(path: str) -> bool:
    return bool((head(path) or {}).get("keep"))
