"""Fitted models under DDP and FSDP2, on two processes: the gradients of the plain model, one plan for all ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "ranks_program.py"


@pytest.mark.parametrize("what", ["ddp", "fsdp", "live", "disagreement"])
def test_two_ranks(what: str, tmp_path: Path) -> None:
    # A file to meet at: a port that was free a moment ago may be taken by another program meanwhile.
    shared = {**os.environ, "MEETING": str(tmp_path / "ranks"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), what],
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, (rank, output) in enumerate(zip(ranks, outputs)):
        assert rank.returncode == 0, output
        assert f"agreed {number}" in output
