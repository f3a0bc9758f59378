"""A first look: what pebbling plans, printed and drawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..chain import plan
from .chart import tradeoff
from .compare import compare
from .named import in_numbers
from .sheet import Sheet
from .text import table

PROBLEM: dict[str, Any] = {
    "steps": 2000, "state": "100MB", "tape": "300MB", "forward": "20ms", "backward": "50ms", "memory": "4GB",
}  # fmt: skip


def demo(directory: str | os.PathLike[str] = "demo", say: Callable[[str], None] = print) -> list[Path]:
    """Plan a sample problem, say what came out, and draw it into ``directory``; the files that were written."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "plan.svg", folder / "compare.svg"]

    planned = plan(**PROBLEM)
    say("2,000 steps with states of 100 MB and tapes of 300 MB would take 600 GB. Within 4 GB:\n")
    sheet = Sheet(planned.schedule, in_numbers(PROBLEM), planned)
    say(sheet.text())
    sheet.picture(pictures[0])

    comparison = compare(200, tape=3)
    say("\nForwards a step for 200 steps, by the states that fit in memory:\n")
    say(table(comparison))
    tradeoff(comparison, pictures[1])

    say(f"\nPictures: {pictures[0]} (the plan), {pictures[1]} (memory against recomputation)")
    return pictures
