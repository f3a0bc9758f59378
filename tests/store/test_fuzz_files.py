"""The benchmark that damages and forges files, for a few hundred of them: none is read wrong, none takes us down."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_files.py"


def test_damaged_and_forged_files_are_read_right_or_refused():
    done = subprocess.run([sys.executable, SCRIPT, "--files", "225", "--seed", "11"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (total,) = re.findall(r"^\| all \| (.*) \|$", done.stdout, re.MULTILINE)
    right, refused, shown, other, *bad = map(int, total.split(" | "))
    assert bad == [0] * 6
    assert right + refused + shown + other == 225
    assert right > 30
    assert refused > 90
