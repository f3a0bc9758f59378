"""Several processes, one plan: what must be equal on every rank before collectives inside a step are safe."""

from __future__ import annotations

import hashlib
from typing import Any

from ..errors import PebblingError


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
