"""The public names are exactly these."""

from __future__ import annotations

import pebbling as pb

NAMES = """
Advance BudgetError CaptureError CorruptSnapshot Cost Dump EndForward Free Hierarchical Mixed Online PebblingError
Periodic Plan Record ReplayError Report Restore Result ResumeError Reverse Revolve ScheduleError SourceError Store
StoreAll StoreError StoreFull Tape Taylor Tier Turn Uneven adjoint check checkpoint explain grad hvp loop op plan
taylor_test value_and_grad
"""


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(pb.__all__) == sorted(NAMES.split())
    assert all(hasattr(pb, name) for name in pb.__all__)


def test_the_errors_form_one_tree() -> None:
    errors = [
        getattr(pb, name) for name in pb.__all__ if name.endswith("Error") or name in ("CorruptSnapshot", "StoreFull")
    ]
    assert all(issubclass(error, pb.PebblingError) for error in errors)
    assert issubclass(pb.CorruptSnapshot, pb.StoreError)
    assert issubclass(pb.StoreFull, pb.StoreError)


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(pb) == sorted([*NAMES.split(), "__version__"])
