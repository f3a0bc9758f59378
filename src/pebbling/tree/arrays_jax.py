"""jax arrays as leaves.

They are copied although they can't be written to, because a buffer that was donated to a compiled
step is gone. Weakly typed arrays and random keys are objects (``objects_jax.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import StoreError
from .arrays import Form, as_dtype, describe, form, parts
from .data import Unreadable
from .dtypes import checked, size

jax: Any = import_module("jax")


class Jax:
    """``jax.Array`` on one device."""

    name = "jax"

    def plain(self, leaf: Any) -> bool:
        return not leaf.weak_type

    def copy(self, leaf: Any) -> Any:
        return leaf.copy()

    def nbytes(self, leaf: Any) -> int:
        return leaf.nbytes

    def pack(self, leaf: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        devices = leaf.sharding.device_set
        if len(devices) > 1:
            raise StoreError(
                f"a jax array of shape {leaf.shape} is spread over {len(devices)} devices and can't be written whole: "
                "keep such states in memory"
            )
        (device,) = devices
        array = np.ascontiguousarray(leaf).reshape(leaf.shape)
        note = (device.platform, device.id) if leaf.committed else None
        return (describe(array.dtype), array.shape, note), array.reshape(-1).view(np.uint8)

    def make(self, spec: tuple[Any, ...]) -> tuple[np.ndarray, Callable[[], Any]]:
        dtype, shape, note = spec
        array = np.empty(shape, dtype)

        def finish() -> Any:
            device = None if note is None else _device(*note)
            made = jax.device_put(array, device)
            if made.dtype != array.dtype:
                raise StoreError(
                    f"the snapshot holds {array.dtype} and jax gives {made.dtype}: enable 64-bit values "
                    'with jax.config.update("jax_enable_x64", True), as when it was written'
                )
            return made

        return array.reshape(-1).view(np.uint8), finish

    def size(self, spec: tuple[Any, ...]) -> int:
        dtype, shape, note = parts(spec, 3)
        checked(shape)
        if note is not None and [type(part) for part in parts(note, 2)] != [str, int]:
            raise Unreadable(f"{note!r} names no device")
        return size(as_dtype(dtype), shape)

    def form(self, spec: tuple[Any, ...]) -> Form:
        return form(np.dtype(spec[0]), spec[1])


def _device(platform: str, number: int) -> Any:
    for device in jax.devices(platform):
        if device.id == number:
            return device
    raise StoreError(f"the snapshot lived on {platform} device {number}, which is not here")


KIND = Jax()
