"""The long run of the invariants: many cases of every family, counted.

python benchmarks/invariants.py --cases 8000 --save FILE
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from time import perf_counter

TESTS = Path(__file__).parents[1] / "tests" / "chain" / "test_invariants.py"


def main() -> None:
    """Run the property tests, count the cases that hypothesis reports, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=8000, help="cases of each invariant")
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    begun = perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(TESTS), "--hypothesis-show-statistics", "-p", "no:cacheprovider"],
        env={**os.environ, "PEBBLING_CASES": str(arguments.cases)},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = perf_counter() - begun
    counts = dict.fromkeys(re.findall(r"::(test_\w+):", run.stdout), 0)
    for name, block in re.findall(r"::(test_\w+):\n(.*?)(?=\n\S|\Z)", run.stdout, re.DOTALL):
        counts[name] += sum(int(found) for found in re.findall(r"(\d+) passing", block))
    lines = [
        f"# Invariants of schedules, {date.today()}",
        "",
        f"{sum(counts.values()):,} cases in {seconds / 60:.0f} minutes; "
        + ("all passed." if run.returncode == 0 else "SOME FAILED."),
        "",
        "| invariant | cases |",
        "|---|---|",
        *(f"| {name.removeprefix('test_').replace('_', ' ')} | {count:,} |" for name, count in counts.items()),
    ]
    print("\n".join(lines))
    if run.returncode:
        print(run.stdout[-3000:])
    if arguments.save:
        arguments.save.write_text("\n".join(lines) + "\n")
    sys.exit(run.returncode)


if __name__ == "__main__":
    main()
