"""Snapshots in a group of Zarr 3, for those who keep their data there or want to look at it with its tools.

Each snapshot is a group named after its key; numbers lie in it as arrays of their own type and shape (axes as they lie
in memory), everything else as bytes. Zarr compresses them (zstd, without loss) unless ``compressors`` says otherwise,
such as ``None`` or a codec of numcodecs; with a codec that loses something say ``lossy=True``, so that reports tell.
Every read is checked against what was written, unless it is lossy.

As with ``Remote``, what each key stands for is known to this process alone: a run can't be resumed from it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..errors import CorruptSnapshot, StoreError
from ..tree import Layout, pack
from .catalogue import Catalogue
from .checksum import checksum
from .contract import Key, Store
from .extra import require


class _ZarrGroup(NamedTuple):
    name: str
    nbytes: int
    check: int
    layout: Layout


class Zarr(Store):
    """Keeps snapshots in a new group of ``place``, and removes that group on ``close``.

    ``place`` is what ``zarr.open_group`` takes: a path, a URL, or a store of zarr. ``options`` go to it, such as
    ``storage_options``. Needs zarr 3: ``pip install 'pebbling[zarr]'``.
    """

    def __init__(
        self,
        place: Any,
        *,
        compressors: Any = "auto",
        filters: Any = "auto",
        lossy: bool = False,
        pickle: bool = False,
        **options: Any,
    ) -> None:
        zarr = require("zarr", "zarr", "Zarr")
        if int(zarr.__version__.split(".")[0]) < 3:
            raise StoreError(f"the Zarr store needs zarr 3, and this is {zarr.__version__}")
        self._may_pickle, self.lossy = pickle, lossy
        # A chunk of nothing but -0.0 counts as empty for zarr, and would come back as 0.0.
        self._how = {"compressors": compressors, "filters": filters, "config": {"write_empty_chunks": True}}
        self._held: Catalogue[_ZarrGroup] = Catalogue(f"the Zarr store in {place}")
        self._name = f"pebbling-{uuid4().hex}"
        self._number = 0
        try:
            self._parent = zarr.open_group(place, mode="a", zarr_format=3, **options)
            self._group = self._parent.create_group(self._name)
        except Exception as error:
            raise StoreError(f"can't open {place}: {type(error).__name__}: {error}") from error

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self._may_pickle

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        meta, buffers = pack(tree, self._may_pickle)
        layout = Layout(meta, self._may_pickle)
        self._number += 1
        name = str(self._number)
        check = 0
        try:
            group = self._group.create_group(name)
            for number, (buffer, form) in enumerate(zip(buffers, layout.forms)):
                typed = buffer if form.dtype is None else buffer.view(form.dtype).reshape(form.shape)
                if typed.size:
                    group.create_array(str(number), data=typed, **self._how)
                    check = checksum(buffer, check)
        except Exception as error:
            with suppress(Exception):
                del self._group[name]
            raise StoreError(f"writing snapshot {key!r} failed: {type(error).__name__}: {error}") from error
        before = self._held.entries.get(key)
        self._held.entries[key] = _ZarrGroup(name, layout.nbytes, check, layout)
        if before is not None:
            self._remove(key, before)

    def get(self, key: Key) -> Any:
        found = self._held.find(key)
        buffers, finish = found.layout.allocate()
        check = 0
        try:
            group = self._group[found.name]
            for number, (buffer, form) in enumerate(zip(buffers, found.layout.forms)):
                if buffer.size:
                    typed = np.asarray(group[str(number)][...])
                    if form.dtype is not None:
                        if typed.shape != form.shape or typed.dtype.newbyteorder("=") != form.dtype.newbyteorder("="):
                            raise ValueError(f"array {number} is not of the kind that was written")
                        typed = typed.astype(form.dtype, copy=False)
                    buffer[...] = np.ascontiguousarray(typed).reshape(-1).view(np.uint8)
                    check = checksum(buffer, check)
        except Exception as error:
            raise CorruptSnapshot(f"snapshot {key!r} can't be read: {type(error).__name__}: {error}") from error
        if check != found.check and not self.lossy:
            raise CorruptSnapshot(f"snapshot {key!r} is not what was written: its bytes fail the check")
        return finish()

    def drop(self, key: Key) -> None:
        found = self._held.find(key)
        del self._held.entries[key]
        self._remove(key, found)

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        """The bytes before compression."""
        return sum(entry.nbytes for entry in self._held.entries.values())

    def close(self) -> None:
        if self._held.close():
            self._held.entries.clear()
            try:
                del self._parent[self._name]
            except Exception as error:
                raise StoreError(f"closing a Zarr store failed: {type(error).__name__}: {error}") from error

    def _remove(self, key: Key, entry: _ZarrGroup) -> None:
        try:
            del self._group[entry.name]
        except Exception as error:
            raise StoreError(f"dropping snapshot {key!r} failed: {type(error).__name__}: {error}") from error
