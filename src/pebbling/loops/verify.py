"""Proof that a step gives, when it is run again, what it gave the first time.

``"last"`` compares the last state of the loop, which the way back computes again in any case;
``"all"`` compares every state. Compared are values, dtypes and shapes, below all derivatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..drive.verify import came_out_differently
from ..tree import fingerprint
from ..tree.compare import digest

_CAUSES = (
    "random numbers that are not part of the state (carry a numpy.random.Generator in it), a step that writes into its "
    "input, hidden state such as globals, counters or caches"
)


class ReplayDigests:
    """Digests of states, remembered on the first sweep and compared after it."""

    __slots__ = ("_plain", "_seen", "all", "on")

    def __init__(self, verify: str | bool, plain: Callable[[Any], Any]) -> None:
        self.on, self.all = verify is not False, verify == "all"
        self._plain = plain
        self._seen: dict[int, list[bytes | None]] = {}

    def see(self, step: int, state: Sequence[Any], where: str, names: Callable[[int], list[str]]) -> None:
        """Look at the state before ``step``."""
        digests = [_digest(self._plain(leaf)) for leaf in state]
        known = self._seen.setdefault(step, digests)
        if known != digests:
            differing = [name for name, one, two in zip(names(len(state)), known, digests) if one != two]
            raise came_out_differently(where, step, differing or ["its structure"], _CAUSES)


def _digest(leaf: Any) -> bytes | None:
    if isinstance(leaf, np.ndarray | np.generic | float | complex | int):
        array = np.asarray(leaf)
        if array.dtype.hasobject:
            return None
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        text = content.tobytes() if content.size <= 2048 else str(digest(content)).encode()
        return hashlib.blake2b(f"{array.dtype}{array.shape}".encode() + text, digest_size=16).digest()
    try:
        return fingerprint(leaf).encode()
    except Exception:
        return None  # it can't be pickled, so nothing can be said about it
