"""Test suites that others wrote, run on pebbling: how many of their cases are right, and why the others are not.

    python benchmarks/outside.py SUITE FOLDER [--write FILE]

``FOLDER`` is a copy of the other project's repository, which you bring. Each suite is one function that takes the
folder and gives an ``Outcome`` for every case: "right", "refused" (one of our errors), "raw" (an error that is not
ours), "wrong", or "not for us" with the reason (the case also fails without pebbling, or tests the other library's own
inside). To add a suite, write such a function and name it in ``SUITES``.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

VERDICTS = ("right", "refused", "raw", "wrong", "not for us")
SUITES = {
    "autograd": "outside_autograd:tests",
    "autograd-examples": "outside_autograd:examples",
    "equinox": "outside_jax:equinox",
    "jax": "outside_jax:jax",
}
"""The module and the function of each suite."""


class Outcome(NamedTuple):
    """What became of one case."""

    case: str
    verdict: str
    reason: str = ""


def reason_of(error: BaseException) -> str:
    """An error in one line, without paths and addresses, so that equal reasons can be counted."""
    text = str(error)
    text = text.partition("\n")[2] if re.match(r"\S+\.py:\d+: [^\n]*\n.", text) else re.sub(r"^\S+\.py:\d+: ", "", text)
    text = text or type(error).__name__
    text = re.sub(r"0x[0-9a-f]+", "0x…", re.sub(r"(?:/[^\s/:'\"]+){2,}", "…", text))
    return " ".join(text.split())[:160]


def report(name: str, outcomes: list[Outcome]) -> str:
    """The counts, and a table of what was not right, by case and reason."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    lines = [f"## {name}\n", ", ".join(f"{counts[v]} {v}" for v in VERDICTS) + f", of {len(outcomes)}.\n"]
    others = Counter((o.verdict, o.case, o.reason) for o in outcomes if o.verdict != "right" or o.reason)
    if others:
        lines += ["| | case | how often | reason |", "|---|---|---|---|"]
        for (verdict, case, reason), count in sorted(others.items()):
            lines.append(f"| {verdict} | {case} | {count} | {reason.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def suite(name: str) -> Callable[[Path], Iterable[Outcome]]:
    module, function = SUITES[name].split(":")
    found: Callable[[Path], Iterable[Outcome]] = getattr(importlib.import_module(module), function)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", type=Path, help="the other project's repository")
    parser.add_argument("--write", type=Path, help="append the table to this file")
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes = list(suite(arguments.suite)(arguments.folder.resolve()))
    text = report(arguments.suite, outcomes)
    text += f"\n{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {time.monotonic() - start:.0f} s\n"
    print(text)
    if arguments.write:
        with arguments.write.open("a") as file:
            file.write(text)


if __name__ == "__main__":
    main()
