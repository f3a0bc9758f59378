"""pyadjoint, and so Firedrake and dolfinx-adjoint: plans from bytes, and a store as the disk of NumPy arrays.

    tape.enable_checkpointing(plan(1000, "8MB", memory="100MB"))

A tape there keeps what a time step needs to be run again, or to be reversed. ``plan`` counts each of the two by the
bytes that you give. Firedrake brings its own checkpoints on disk (``enable_disk_checkpointing``). For
``numpy_adjoint``, which has none, ``keep_in`` makes any store of pebbling the disk of a tape.

Known of pyadjoint 2026.10, with its own schedules as with ours: once the functional was evaluated at another value,
derivatives mix the new value with snapshots of the old one, unless every step is stored. Use a new tape for each
value, or ``StoreAll``.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from .. import chain
from ..store import Store

try:
    import numpy_adjoint
    from pyadjoint import Tape, get_working_tape
    from pyadjoint.overloaded_type import OverloadedType
    from pyadjoint.tape import TapePackageData
except ImportError as error:
    raise ImportError("pebbling.adapters.pyadjoint needs the package: pip install pyadjoint-ad") from error
from .checkpoint_schedules import TranslatedSchedule, schedule

__all__ = ["StoredArray", "TapeStore", "keep_in", "plan"]


def plan(
    steps: int,
    state: Any,
    *,
    tape: Any = None,
    memory: float | str | None = None,
    disk: float | str | None = None,
    disk_write: float | str | None = None,
    disk_read: float | str | None = None,
    forward: float | str | None = None,
    backward: float | str | None = None,
) -> TranslatedSchedule:
    """The best schedule within bytes of memory, and of disk beside it, for ``tape.enable_checkpointing(…)``.

    ``state`` is what one step starts from, and ``tape`` what its adjoint needs (as much as a state, unless given):
    bytes, text such as "8MB", an array, or a list of arrays. The other arguments are those of ``pb.plan``;
    ``.plan`` of the result is the schedule in pebbling's words.

    >>> plan(100, "8MB", memory="100MB").plan.cost.forwards
    250
    """
    # Transfers block in pyadjoint, so none of them overlaps the compute.
    found = chain.plan(
        steps,
        _bytes(state),
        tape=None if tape is None else _bytes(tape),
        forward=forward,
        backward=backward,
        memory=memory,
        disk=disk,
        disk_write=disk_write,
        disk_read=disk_read,
        overlap=False,
    )
    return schedule(found)


def keep_in(store: Store, tape: Tape | None = None) -> TapeStore:
    """Make ``store`` the disk of a tape: snapshots of ``StoredArray`` values that a schedule puts on disk go there.

    Call it before ``tape.enable_checkpointing``. The working tape is meant unless another is given.
    """
    kept = TapeStore(store)
    (get_working_tape() if tape is None else tape)._package_data["pebbling"] = kept
    return kept


class TapeStore(TapePackageData):  # type: ignore[misc]
    """What a tape knows of its store: whether snapshots go there just now."""

    def __init__(self, store: Store) -> None:
        self.store, self.active, self._numbers = store, False, count()

    def put(self, array: np.ndarray) -> Any:
        """Keep an array until the checkpoint that stands for it is dropped."""
        key = f"pyadjoint {next(self._numbers)}"
        self.store.put(key, np.asarray(array))
        return _InStore(self.store, key)

    def continue_checkpointing(self) -> None:
        """From now on checkpoints go to the store."""
        self.active = True

    def pause_checkpointing(self) -> None:
        """From now on checkpoints stay in memory."""
        self.active = False

    def clear(self) -> None:
        """Checkpoints drop what they hold when they go, so nothing is left to do."""

    reset = clear

    def checkpoint(self) -> None:
        """Nothing has to be remembered beside the checkpoints."""

    def restore_from_checkpoint(self, state: None) -> None:
        """See ``checkpoint``."""

    def copy(self) -> TapeStore:
        """The same store for a copy of the tape."""
        return self


class StoredArray(numpy_adjoint.ndarray):  # type: ignore[misc]
    """A ``numpy_adjoint`` array whose checkpoints go to the store of the tape when the schedule says disk.

    >>> StoredArray.of([1.0, 2.0])
    StoredArray([1., 2.])
    """

    @classmethod
    def of(cls, values: Any) -> StoredArray:
        """An array with these values."""
        values = np.asarray(values, float)
        return cls(values.shape, values.dtype, buffer=np.ascontiguousarray(values).copy())

    def _ad_create_checkpoint(self) -> Any:
        kept = get_working_tape()._package_data.get("pebbling")
        return self.copy() if kept is None or not kept.active else kept.put(self)


class _InStore(OverloadedType):  # type: ignore[misc]
    """A checkpoint that is in a store; it leaves the store when the tape lets go of it."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key

    def _ad_restore_at_checkpoint(self, checkpoint: _InStore) -> StoredArray:
        return StoredArray.of(checkpoint._store.get(checkpoint._key))

    def __del__(self) -> None:
        # A store that is closed has dropped it already.
        if self._key in self._store:
            self._store.drop(self._key)


def _bytes(size: Any) -> Any:
    """Bytes as a number, of bytes, arrays or lists of arrays; text stays text."""
    if isinstance(size, list | tuple):
        return sum(_bytes(part) for part in size)
    return getattr(size, "nbytes", size)
