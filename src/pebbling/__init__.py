"""Memory-optimal reverse-mode differentiation: exact gradients within a budget, for the least recomputation."""

from .chain import (
    Advance,
    Cost,
    EndForward,
    Free,
    Mixed,
    Online,
    Periodic,
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

__version__ = "0.1.0"
