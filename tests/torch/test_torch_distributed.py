"""Two processes on gloo: gradients are those of a plain loop, and every parameter is ready once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = (
    "ddp",
    "ddp in the body",
    "ddp of a chain",
    "fsdp around",
    "fsdp in the body",
    "fsdp of the body alone",
    "state in shards",
)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What both processes say about all cases."""
    meeting = str(tmp_path_factory.mktemp("gloo") / "meet")
    runs = [
        subprocess.Popen(
            [sys.executable, str(HERE / "distributed_run.py"), str(rank), meeting],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    return [run.communicate(timeout=300)[0] for run in runs]


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case, said):
    for text in said:
        assert f"{case}: equal\n" in text, text[-3000:]
