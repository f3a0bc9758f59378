"""Bytes that a graph, or a plan for one, takes over time, as a picture."""

from __future__ import annotations

import os

from ..graph import Analysis, Compute, GraphPlan, analyze, check
from ..units import format_bytes
from .axis import Axis, byte_unit, draw_x, draw_y, name_x, time_unit
from .frame import LEFT, RIGHT, WIDTH, draw_title
from .panel import Corner, thinned
from .svg import Page, number, polyline

_HEIGHT = 320.0
_TOP = 92.0


def live(of: Analysis | GraphPlan, path: str | os.PathLike[str] | None = None) -> str:
    """The bytes taken over time as SVG, written to ``path`` if there is one; a plan is drawn over what it saves.

    >>> from pebbling.graph import Graph, Node, Storage, analyze
    >>> graph = Graph([Node("y", (), (Storage("y", 8),), time=1.0)], outputs=["y"])
    >>> live(analyze(graph)).startswith("<svg")
    True
    """
    plan = of if isinstance(of, GraphPlan) else None
    analysis = of if isinstance(of, Analysis) else analyze(of.graph)
    before = _corners([(node.time, taken) for node, taken in zip(of.graph.nodes, analysis.curve, strict=True)])
    after = _corners(_runs(plan)) if plan else []
    name = of.graph.name or "A graph"
    if plan:
        title = f"{name}: {format_bytes(plan.peak)} instead of {format_bytes(analysis.peak)}"
        detail = (
            f"Replays take {plan.overhead:.2%} more time; no plan within the budget takes less than {plan.bound:.2%}."
        )
    else:
        title = f"{name}: {format_bytes(analysis.peak)} at {analysis.worst}"
        detail = (
            f"Every operation once; no plan, whatever it replays, takes less than {format_bytes(analysis.lower_peak)}."
        )
    page = Page(WIDTH, 0, f"{title}. {detail}")
    draw_title(page, title, detail)
    bottom = _TOP + _HEIGHT
    longest = max(corner[0] for corner in (*before, *after))
    highest = max(analysis.peak, plan.memory or 0 if plan else 0) or 1
    time = Axis(0.0, longest or 1.0, LEFT, RIGHT, time_unit(longest, True))
    amount = Axis(0.0, highest * 1.08, bottom, _TOP, byte_unit(highest), spacing=30.0)
    draw_x(page, time, _TOP, bottom)
    draw_y(page, amount, LEFT, RIGHT, f"taken, {amount.unit.name}")
    for colour, corners in (("slate", before), ("blue", after)):
        _draw(page, colour, corners, time, amount, bottom)
    if plan and plan.memory is not None:
        page.path("s-red limit", [f"M{number(LEFT)} {number(amount(plan.memory))}H{number(RIGHT)}"])
        text = f"budget {format_bytes(plan.memory)}"
        page.text("f-red", RIGHT, amount(plan.memory) - 5, text, text_anchor="end", font_size=11)
    name_x(page, time, bottom)
    page.height = bottom + 50
    return page.svg(path)


def _runs(plan: GraphPlan) -> list[tuple[float, int]]:
    """Time and bytes of each run of a plan."""
    steps = zip(plan.steps, check(plan).curve, strict=True)
    return [(plan.graph.node[step.node].time, taken) for step, taken in steps if isinstance(step, Compute)]


def _corners(runs: list[tuple[float, int]]) -> list[Corner]:
    corners: list[Corner] = [(0.0, 0.0)]
    now = 0.0
    for time, taken in runs:
        corners += [(now, float(taken)), (now + time, float(taken))]
        now += time
    return [*corners, (now, 0.0)]


def _draw(page: Page, colour: str, corners: list[Corner], time: Axis, amount: Axis, bottom: float) -> None:
    if corners:
        points = [(time(moment), amount(taken)) for moment, taken in thinned(corners, time)]
        line = polyline(points)
        page.path(f"f-{colour} area", [f"{line}V{number(bottom)}H{number(points[0][0])}Z" if line else ""])
        page.path(f"s-{colour} curve", [line])
