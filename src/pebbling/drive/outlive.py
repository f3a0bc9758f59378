"""A store for a run that may be resumed: one that the next process finds again.

A ``Disk`` store that has no name of its own takes one that follows from being resumed, and is kept until the run is
over. One that has a name says itself whether it is kept.
"""

from __future__ import annotations

from ..store import Compressed, Disk, Store
from .store_slots import in_use

_RUN = "resume-snapshots"


def disk_of(store: Store | None) -> Disk | None:
    """The disk store that a store writes to."""
    while isinstance(store, Compressed):
        store = store.store
    return store if isinstance(store, Disk) else None


class Outliving:
    """Keeps a store for as long as a run may have to be resumed, and leaves it as it was found."""

    def __init__(self, store: Store) -> None:
        disk = disk_of(store)
        if disk is None:
            raise ValueError(
                f"with resume= the store must outlive the process, which a {type(store).__name__} does not: use "
                "Disk(path)"
            )
        self._disk = disk
        self._follows = not disk.keep
        if disk.keep:
            return
        if in_use(store):
            raise ValueError(f"this {type(store).__name__} is in use by another run: give each run a store of its own")
        if disk.is_named:
            raise ValueError(
                f"with resume= the store must outlive the process: Disk(path, run={disk.run!r}, keep=True), or leave "
                "out run="
            )
        if disk.keys():
            raise ValueError(
                f"with resume= the store must outlive the process, and this one holds {len(disk.keys())} snapshots of "
                "yours that would not: give the run a store of its own, or Disk(path, run='…', keep=True)"
            )
        disk.rename(_RUN, keep=True)

    def end(self) -> None:
        """The run is over, and what it kept is gone."""
        if self._follows and not self._disk.keys():
            self._disk.keep = False
