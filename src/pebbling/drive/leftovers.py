"""Names of what a run puts into a store, and what runs that died left there.

A snapshot of a run that may be resumed is named after it, and waits for it. Everything else that a run puts into a
store is of use to this run alone: once its process is dead, the next run that uses the store removes it.
"""

from __future__ import annotations

import re
from uuid import uuid4

from ..store import Store

_USELESS = re.compile(r"pebbling (probe [0-9a-f]{32}|run [0-9a-f]{12} step [0-9]+)")


def probe() -> str:
    """A key for trying a store."""
    return f"pebbling probe {uuid4().hex}"


def key_prefix(name: str | None) -> str:
    """How the keys of a run begin; ``name`` is that of one that may be resumed."""
    return f"pebbling run {uuid4().hex[:12]} step " if name is None else f"pebbling resume {name} step "


def sweep_out(store: Store) -> None:
    """Drop what dead runs left in a store; nobody else may be using it."""
    keys = store.keys()
    for key in keys:
        if isinstance(key, str) and _USELESS.fullmatch(key):
            store.drop(key)
