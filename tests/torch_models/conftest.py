"""Makes the shared modules of these tests importable under ``--import-mode=importlib``, and tests independent."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """What was captured before, of which torch keeps only so much for one function."""
    torch._dynamo.reset()
