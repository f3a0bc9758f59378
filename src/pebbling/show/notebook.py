"""What notebooks show of plans and results: a picture of a schedule, the text of a report.

IPython is told by the names of the classes, so that nothing which draws is imported before something is shown,
and the classes themselves know nothing of notebooks:

    In [1]: pb.Revolve(20, 4)          # the pebble picture
    In [2]: pb.plan(1000, "1GB", memory="16GB")      # its text, and the picture of its schedule
"""

from __future__ import annotations

import html
import sys
from typing import Any

from ..chain.plan import Plan
from ..chain.schedule import Schedule
from .pebbles import pebbles

AS_TEXT = {
    "pebbling.drive.report": ("Report",),
    "pebbling.drive.taylor": ("Taylor",),
    "pebbling.graph.plan": ("GraphPlan",),
    "pebbling.source.explain": ("Explanation",),
}
"""Values whose text says it all, by module."""


def register() -> None:
    """Teach the notebook in which this runs, if there is one, to show plans and results."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    if shell is None or not hasattr(shell, "display_formatter"):
        return
    formatters = shell.display_formatter.formatters
    formatters["image/svg+xml"].for_type(Schedule, picture)
    formatters["text/html"].for_type(Plan, of_plan)
    formatters["text/html"].for_type_by_name("pebbling.drive.adjoint", "Result", of_result)
    for module, names in AS_TEXT.items():
        for name in names:
            formatters["text/html"].for_type_by_name(module, name, as_text)


def picture(schedule: Schedule) -> str:
    """A schedule as an SVG picture."""
    return pebbles(schedule)


def as_text(value: Any) -> str:
    """What ``print`` shows, in letters of one width."""
    return f"<pre>{html.escape(str(value))}</pre>"


def of_plan(plan: Plan) -> str:
    """The text of a plan, and the picture of its schedule."""
    return as_text(plan) + pebbles(plan.schedule)


def of_result(result: Any) -> str:
    """The report of a run: the arrays are for programs to read."""
    return as_text(result.report)
