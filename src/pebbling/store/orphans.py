"""What dead runs left in a directory: listed on demand, removed on demand, never trusted, never touched otherwise."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import StoreError
from . import files
from .directory import lock_file, owned, remove
from .journal import head
from .lock import DirectoryLock, describe, holder, is_lock


class Orphan(NamedTuple):
    """A file of a run that is over."""

    path: str
    run: str
    nbytes: int
    resumable: bool
    """Whether the run meant its snapshots to be found again."""


def orphans(path: str | os.PathLike[str]) -> list[Orphan]:
    """The files that dead runs left in a directory; those of a live store are not among them."""
    directory = os.path.abspath(os.fsdecode(path))
    if not os.path.isdir(directory):
        raise StoreError(f"{directory} is not a directory")
    with files.translated("listing what dead runs left", directory):
        return _listed(directory)


def clean(path: str | os.PathLike[str], run: str | None = None) -> list[Orphan]:
    """Remove what dead runs left in a directory, or one of them; what was removed.

    Refuses while a live store has the directory, with a ``StoreError`` that says whose it is.
    """
    directory = os.path.abspath(os.fsdecode(path))
    if os.path.isdir(directory):
        with files.translated("cleaning", directory):
            live = holder(directory)
        if live is not None:
            raise StoreError(f"{directory} is in use by {describe(live)}: what it holds is no leftover")
    listed = [orphan for orphan in orphans(directory) if run is None or orphan.run == run]
    if not listed:
        return []
    lock = DirectoryLock(directory, "clean")
    with files.translated("cleaning", directory):
        try:
            wanted = {orphan.path for orphan in listed}
            for file in sorted(owned(directory), key=lambda file: file.number is None):
                if file.path in wanted:
                    remove(file)
        finally:
            lock.release()
    return listed


def _listed(directory: str) -> list[Orphan]:
    live = holder(directory)
    runs = [] if live is None else [live.get("run"), *_as_list(live.get("runs"))]
    found = [file for file in owned(directory) if file.run not in runs]
    kept = {file.run for file in found if file.number is None and _kept(file.path)}
    listed = [Orphan(file.path, file.run, os.path.getsize(file.path), file.run in kept) for file in found]
    lock = lock_file(directory)
    if live is None and is_lock(lock):
        listed.append(Orphan(lock, "", os.path.getsize(lock), False))
    return listed


def _as_list(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _kept(path: str) -> bool:
    return bool((head(path) or {}).get("keep"))
