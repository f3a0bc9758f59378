"""Tests that know nothing of each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """What was captured before, of which torch keeps only so much for one function."""
    torch._dynamo.reset()
