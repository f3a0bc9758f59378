"""Independent adjoint runs on a Dask cluster: the shots of a survey, the members of an ensemble.

    client = Client(cluster)
    futures = adjoints(client, shot, sources, scratch="/scratch/survey")
    gradient = sum(future.result().adjoint for future in futures)

``shot(source)`` gives the arguments of ``pb.adjoint`` as a dict, on the worker that runs it, so that models are loaded
there and not sent around. Each run has

- a budget: ``share`` of the memory limit of its worker, unless its arguments say slots, memory or a schedule;
- a folder of its own under ``scratch``, where its journal is. If a worker dies, Dask gives its runs to others, and they
  go on from the last commit of the dead one. ``scratch`` is a path that all workers see; on a path of one node, only
  workers of that node find the journal, and others begin anew.

What Dask decides is not decided again here: how many deaths a task may see (``distributed.scheduler.allowed-failures``,
3 unless configured), and where it runs. In a worker with several threads runs wait for each other, since memory is
measured for a whole process; give workers one thread each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any
from uuid import uuid4

from ..drive import Result, adjoint

try:
    from distributed import Client, Future, get_worker
except ImportError as error:
    raise ImportError("pebbling.adapters.dask needs the package: pip install 'dask[distributed]'") from error

__all__ = ["adjoints"]

_ONE_AT_A_TIME = threading.Lock()
_BUDGETS = ("slots", "memory", "schedule", "budget")


def adjoints(
    client: Client,
    shot: Callable[[Any], dict[str, Any]],
    items: Iterable[Any],
    *,
    scratch: str | PathLike[str],
    run: str | None = None,
    share: float = 0.5,
    retries: int = 3,
) -> list[Future]:
    """One future for each item, in order; its result is a ``pb.Result``.

    ``shot(item)`` gives the arguments of ``pb.adjoint``. ``run`` is a name for all of it: a second call with the same
    name, items and ``scratch``, after the client itself was killed, goes on from what the first one left. ``share`` is
    the part of a worker's memory limit that a run may use. ``retries`` is how often a run that raised is tried again;
    one whose worker died is tried again by Dask.
    """
    if not callable(shot):
        raise TypeError(f"shot(item) gives the arguments of pb.adjoint as a dict, and shot is {shot!r}")
    if not 0 < share <= 1:
        raise ValueError(f"share is a part of the worker's memory, above 0 and up to 1, not {share!r}")
    name = uuid4().hex[:12] if run is None else run
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise ValueError(f"run is a plain name, not {run!r}")
    folder = os.path.join(os.fspath(scratch), name)
    return [
        client.submit(
            _run, shot, item, os.path.join(folder, str(index)), share, key=f"pebbling-{name}-{index}", retries=retries
        )
        for index, item in enumerate(items)
    ]


def _run(shot: Callable[[Any], dict[str, Any]], item: Any, folder: str, share: float) -> Result:
    """One run, on a worker."""
    given = shot(item)
    if not isinstance(given, dict):
        raise TypeError(f"shot(item) gives the arguments of pb.adjoint as a dict, and gave {given!r}")
    if not any(given.get(name) is not None for name in _BUDGETS):
        limit = _limit()
        if limit is None:
            raise ValueError(
                "the worker has no memory limit: start it with --memory-limit, or let shot(item) give slots= or memory="
            )
        given = {**given, "memory": int(limit * share)}
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with _ONE_AT_A_TIME:
        return adjoint(**{"resume": folder, **given})


def _limit() -> int | None:
    """The memory limit of this worker, in bytes."""
    manager = get_worker().memory_manager
    return None if manager.memory_limit is None else int(manager.memory_limit)
