"""The public names are exactly these."""

from __future__ import annotations

import pickle

import pytest

import pebbling as pb

NAMES = """
Advance Budget BudgetError CaptureError CorruptSnapshot Cost Dump EndForward Free Hierarchical Mixed Online
PebblingError Periodic Plan Record ReplayError Report Restore Result ResumeError Reverse Revolve ScheduleError Snapshot
SourceError StoreAll StoreError StoreFull Tape Taylor Tier Turn Uneven adjoint check checkpoint explain grad hvp loop op
plan taylor_test value_and_grad why
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


def test_the_old_name_of_an_action_works_with_a_warning() -> None:
    from pebbling import chain

    for module in (pb, chain):
        with pytest.warns(DeprecationWarning, match=r"pebbling\.Snapshot") as found:
            assert module.Store is pb.Snapshot
        assert found[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="Snapshot"):
        from pebbling import Store
    assert Store(3, 0, 1) == pb.Snapshot(3, 0, 1)
    # An action that was pickled before it was renamed.
    pickled = pickle.dumps(pb.Snapshot(3, 0, 1), 0).replace(b"actions\nSnapshot", b"actions\nStore")
    with pytest.warns(DeprecationWarning, match="Snapshot"):
        assert pickle.loads(pickled) == pb.Snapshot(3, 0, 1)
    with pytest.raises(AttributeError, match="no attribute 'Shop'"):
        pb.Shop  # noqa: B018
