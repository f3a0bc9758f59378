"""Memory-optimal reverse-mode differentiation: exact gradients within a budget, for the least recomputation.

The engine that differentiates NumPy code is imported on first use, the rest at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .chain import (
    Advance,
    Cost,
    EndForward,
    Free,
    Hierarchical,
    Mixed,
    Online,
    Periodic,
    Plan,
    Record,
    Restore,
    Reverse,
    Revolve,
    Store,
    StoreAll,
    Tier,
    Turn,
    Uneven,
    check,
    plan,
)
from .drive import Dump, Report, Result, Taylor, adjoint, taylor_test
from .errors import (
    BudgetError,
    CaptureError,
    CorruptSnapshot,
    PebblingError,
    ReplayError,
    ResumeError,
    ScheduleError,
    SourceError,
    StoreError,
    StoreFull,
)

if TYPE_CHECKING:
    from .loops import grad, hvp, loop, value_and_grad
    from .source import checkpoint, explain
    from .tape import Tape, op

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("grad", "hvp", "loop", "value_and_grad"):
        found = globals()[name] = getattr(import_module(".loops", __name__), name)
        return found
    if name in ("checkpoint", "explain"):
        found = globals()[name] = getattr(import_module(".source", __name__), name)
        return found
    if name in ("Tape", "op"):
        found = globals()[name] = getattr(import_module(".tape", __name__), name)
        return found
    raise AttributeError(f"module 'pebbling' has no attribute {name!r}")


__all__ = [
    "Advance",
    "BudgetError",
    "CaptureError",
    "CorruptSnapshot",
    "Cost",
    "Dump",
    "EndForward",
    "Free",
    "Hierarchical",
    "Mixed",
    "Online",
    "PebblingError",
    "Periodic",
    "Plan",
    "Record",
    "ReplayError",
    "Report",
    "Restore",
    "Result",
    "ResumeError",
    "Reverse",
    "Revolve",
    "ScheduleError",
    "SourceError",
    "Store",
    "StoreAll",
    "StoreError",
    "StoreFull",
    "Tape",
    "Taylor",
    "Tier",
    "Turn",
    "Uneven",
    "adjoint",
    "check",
    "checkpoint",
    "explain",
    "grad",
    "hvp",
    "loop",
    "op",
    "plan",
    "taylor_test",
    "value_and_grad",
]
