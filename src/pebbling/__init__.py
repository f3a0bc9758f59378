"""Memory-optimal reverse-mode differentiation: exact gradients within a budget, for the least recomputation.

The engine that differentiates NumPy code is imported on first use, the rest at once.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .budget import Budget
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
    Snapshot,
    StoreAll,
    Tier,
    Turn,
    Uneven,
    check,
    plan,
)
from .chain.actions import old_name
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
    from .loops.loop import loop

    # By the files that define them: a type checker takes a name of the package for the file of that name.
    from .source.checkpoint import checkpoint
    from .source.explain import explain
    from .source.gradients import grad, hvp, value_and_grad
    from .source.why import why
    from .tape import Tape, op

__version__ = "0.2.0"


_LATER = {
    "checkpoint": ".source",
    "explain": ".source",
    "grad": ".source.gradients",
    "hvp": ".source.gradients",
    "loop": ".loops",
    "op": ".tape",
    "Tape": ".tape",
    "value_and_grad": ".source.gradients",
    "why": ".source.why",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        return old_name(name, __name__)
    found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


__all__ = [
    "Advance",
    "Budget",
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
    "Snapshot",
    "SourceError",
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
    "why",
]

if "IPython" in sys.modules:
    import_module(".show.notebook", __name__).register()
