"""One plan for all ranks: the first makes it, the others take it, once it is clear that their graphs are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import distributed
from torch.utils._python_dispatch import _disable_current_modes

from ...errors import CaptureError, PebblingError
from ...graph import GraphPlan


def agree(
    group: Any,
    fingerprint: str,
    memory: int | None,
    make: Callable[[], GraphPlan],
    did: str = "captured another graph",
) -> GraphPlan:
    """The plan of the group's first rank, which all its ranks must ask for in the same order."""
    with _disable_current_modes():
        return _agree(group, fingerprint, memory, make, did)


def _agree(group: Any, fingerprint: str, memory: int | None, make: Callable[[], GraphPlan], did: str) -> GraphPlan:
    rank = distributed.get_rank(group)
    seen: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(seen, (fingerprint, memory), group=group)
    budgets = list(dict.fromkeys(budget for _, budget in seen))
    if len(budgets) > 1:
        told = ", ".join("no limit" if budget is None else f"{budget} bytes" for budget in budgets)
        raise CaptureError(
            f"the ranks of a group asked for different budgets ({told}): give all of them the same memory=, or leave "
            "group out, so that every rank plans for itself"
        )
    others = [str(each) for each, (other, _) in enumerate(seen) if other != seen[0][0]]
    if others:
        raise CaptureError(
            f"ranks {', '.join(others)} {did} than rank 0: give all ranks of a group batches of the "
            "same shapes, or leave group out, so that every rank plans for itself"
        )
    outcome: list[Any] = [None]
    if rank == 0:
        try:
            outcome = [make()]
        except PebblingError as error:
            outcome = [error]
    distributed.broadcast_object_list(outcome, src=distributed.get_global_rank(group, 0), group=group)
    if isinstance(outcome[0], PebblingError):
        raise outcome[0]
    plan: GraphPlan = outcome[0]
    return plan
