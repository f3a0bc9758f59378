"""One self-contained page about the plan of a model: no script from elsewhere, no font, no picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ...graph import solve
from ...units import format_bytes, format_seconds
from .charts import memory_over_time, trade_off_curve
from .facts import Alive, Point, Share, at_peak, curve, modules, trade_off

if TYPE_CHECKING:
    from .model_plan import ModelPlan

_ROWS = 12
_ITSELF = '<span class="op">the model itself</span>'
_LIGHT = (
    "--page:#f6f7f9;--card:#ffffff;--ink:#1b2330;--soft:#5b6675;--grid:#e4e8ee;"
    "--before:#d98c00;--after:#0072b2;--bound:#008a65;--limit:#b9588f"
)
_DARK = (
    "--page:#0d1117;--card:#151b24;--ink:#e8ecf2;--soft:#98a4b3;--grid:#28313d;"
    "--before:#f0ab33;--after:#4ea6e0;--bound:#2fbf93;--limit:#dc86b6"
)
_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
  "Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}}
main{{max-width:1040px;margin:0 auto;padding:36px 20px 60px}}
h1{{font-size:24px;line-height:1.3;margin:0 0 4px;font-weight:650;letter-spacing:-.01em}}
h2{{font-size:16px;margin:0 0 2px;font-weight:650}}
p{{margin:0 0 12px;color:var(--soft)}}
section{{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:20px 22px;margin-top:18px}}
.figures{{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin-top:20px}}
.figure{{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:14px 16px}}
.figure b{{display:block;font-size:22px;font-weight:650;letter-spacing:-.01em}}
.figure span{{color:var(--soft);font-size:13px}}
svg{{display:block;width:100%;height:auto}}
.grid{{stroke:var(--grid)}}
.tick{{fill:var(--soft);font-size:12px}}
.line{{fill:none;stroke-width:1.8;stroke-linejoin:round}}
.area{{opacity:.14;stroke:none}}
.line.before{{stroke:var(--before)}}.area.before{{fill:var(--before)}}
.line.after,.line.found{{stroke:var(--after)}}.area.after{{fill:var(--after)}}
.line.bound{{stroke:var(--bound);stroke-dasharray:6 4}}.area.bound{{fill:var(--bound)}}
.turn{{stroke-dasharray:2 4;opacity:.7}}.turn.before{{stroke:var(--before)}}.turn.after{{stroke:var(--after)}}
.budget{{stroke:var(--limit);stroke-width:1.4;stroke-dasharray:7 4}}
.budget-name{{fill:var(--limit);font-size:12px;font-weight:600}}
.spot{{fill:var(--after)}}
.here{{fill:var(--card);stroke:var(--limit);stroke-width:3}}
.here-name{{fill:var(--limit);font-size:13px;font-weight:600}}
.legend{{display:flex;flex-wrap:wrap;gap:6px 18px;margin:10px 0 6px;color:var(--soft);font-size:13px}}
.legend i{{display:inline-block;width:18px;height:0;border-top:3px solid;margin-right:7px;vertical-align:middle}}
table{{width:100%;border-collapse:collapse;font-size:13.5px}}
th{{text-align:left;color:var(--soft);font-weight:500;padding:6px 8px;border-bottom:1px solid var(--grid)}}
td{{padding:6px 8px;border-bottom:1px solid var(--grid);vertical-align:middle}}
tr:last-child td{{border-bottom:0}}
.n{{text-align:right;white-space:nowrap}}
.name{{overflow-wrap:anywhere}}
.op{{color:var(--soft)}}
.bar{{height:9px;border-radius:3px;background:var(--after);}}
.bar.kept{{background:var(--bound)}}.bar.again{{background:var(--before)}}
td.wide{{width:26%}}
.scroll{{overflow-x:auto}}
details summary{{cursor:pointer;color:var(--soft);padding:8px 0 0;font-size:13.5px}}
footer{{color:var(--soft);font-size:13px;margin-top:22px}}
"""


def page(plan: ModelPlan, seconds: float = 8.0) -> str:
    """The page, as HTML; ``seconds`` bounds the search for the curve of budgets."""
    chosen = plan.graph_plan
    everything = solve(chosen.graph, None)
    # All shares on the page are of the model's own time, a loss in parts counted as what it adds.
    points = [
        Point(each.memory, plan.share(each.overhead), plan.share(each.bound)) for each in trade_off(chosen, seconds)
    ]
    here = Point(chosen.memory or chosen.peak, plan.overhead, plan.bound)
    before, after = curve(everything), curve(chosen)
    name = escape(chosen.graph.name or "model")
    sections = [
        _section(
            "Memory over time",
            "Bytes above the start while the step runs, in the order of execution; dotted lines mark where the "
            "backward pass begins.",
            _legend(("before", "everything kept"), ("after", "this plan"), ("limit", "budget"))
            + memory_over_time(before, after, chosen.memory),
        ),
        _section(
            "What makes the peak",
            f"Storages that are there at the worst moment of the plan, {format_bytes(after.peak)} in all.",
            _peak_table(at_peak(chosen)),
        ),
        _section(
            "What another budget would cost",
            "Time added by replays, as a share of one forward and backward pass. Below the dashed line there is no "
            "plan, whatever one does.",
            _legend(("after", "plans found"), ("bound", "proven lower bound"), ("limit", "this plan"))
            + trade_off_curve(points, here),
        ),
        _section(
            "Modules",
            "Forward pass only: what each module makes, what of it is kept for the backward pass, what is run again.",
            _module_table(modules(chosen)),
        ),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}: plan</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style><main>'
        f"<h1>{_headline(plan, name, before.peak)}</h1><p>{_detail(plan)}</p>"
        f"{_figures(plan, before.peak)}{''.join(sections)}<footer>{_footer(plan)}</footer></main></html>\n"
    )


def _headline(plan: ModelPlan, name: str, before: int) -> str:
    less = 1 - plan.planned / before if before else 0.0
    if not plan.replayed:
        return f"{name} fits in {format_bytes(plan.peak)} without any replay"
    return f"{name} in {format_bytes(plan.peak)}: {less:.0%} less memory for {plan.overhead:.1%} more time"


def _detail(plan: ModelPlan) -> str:
    proof = (
        "proven optimal: no plan within the budget is faster"
        if plan.graph_plan.optimal
        else f"no plan within the budget can add less than {plan.bound:.1%}"
    )
    if plan.backend != "eager":
        proof += (
            f", by what {plan.backend} is expected to store; peaks on this page are planned but for the measured one"
        )
    parts = f" The loss runs some rows at a time, which adds {plan.in_parts:.1%}." if plan.in_parts else ""
    return f"{len(plan.graph):,} operations, {sum(plan.replayed.values()):,} of them run again; {proof}.{parts}"


def _figures(plan: ModelPlan, before: int) -> str:
    budget = "no limit" if plan.memory is None else format_bytes(plan.memory)
    least = "" if plan.graph_plan.minimum is None else f"smallest {format_bytes(plan.graph_plan.minimum)}"
    measured = plan.backend != "eager" and plan.measured is not None
    added = format_seconds((plan.plain or plan.graph.time) * plan.overhead)
    rows = [
        *([(format_bytes(plan.peak), f"measured peak, of {budget}")] if measured else []),
        (format_bytes(plan.planned), "planned peak" if measured else f"peak of the plan, of {budget}"),
        (format_bytes(before), "peak with everything kept"),
        (f"{plan.overhead:.2%}", f"more time, {added} a step"),
        (f"{plan.bound:.2%}", f"lower bound, gap {plan.gap:.2%}"),
        (format_bytes(sum(plan.graph.storage[name].bytes for name in plan.kept)), least or "kept between the passes"),
    ]
    return (
        '<div class="figures">'
        + "".join(f'<div class="figure"><b>{a}</b><span>{b}</span></div>' for a, b in rows)
        + "</div>"
    )


def _peak_table(found: list[Alive]) -> str:
    most = found[0].bytes if found else 1
    rows = [
        f'<tr><td class="name">{escape(each.name)}<br><span class="op">{escape(each.op)}</span></td>'
        f'<td class="name">{escape(each.module) or _ITSELF}</td><td class="n">{format_bytes(each.bytes)}</td>'
        f'<td class="wide"><div class="bar" style="width:{100 * each.bytes / most:.1f}%"></div></td></tr>'
        for each in found
    ]
    head = '<tr><th>storage<th>module<th class="n">bytes<th></tr>'
    return _folded(head, rows, "further storages, " + format_bytes(sum(each.bytes for each in found[_ROWS:])))


def _module_table(found: list[Share]) -> str:
    most = max((each.made for each in found), default=1) or 1
    slow = max((each.replayed for each in found), default=0.0) or 1.0
    rows = [
        f'<tr><td class="name">{escape(each.module) or _ITSELF}</td><td class="n">{format_bytes(each.made)}</td>'
        f'<td class="n">{format_bytes(each.kept)}</td>'
        f'<td class="wide"><div class="bar kept" style="width:{100 * each.kept / most:.1f}%"></div></td>'
        f'<td class="n">{each.replays or "–"}</td>'
        f'<td class="n">{format_seconds(each.replayed) if each.replays else "–"}</td>'
        f'<td class="wide"><div class="bar again" style="width:{100 * each.replayed / slow:.1f}%"></div></td></tr>'
        for each in sorted(found, key=lambda each: -each.made)
    ]
    head = (
        '<tr><th>module<th class="n">made<th class="n">kept<th><th class="n">runs again'
        '<th class="n">time of that<th></tr>'
    )
    return _folded(head, rows, "further modules")


def _folded(head: str, rows: list[str], rest: str) -> str:
    first = f'<div class="scroll"><table>{head}{"".join(rows[:_ROWS])}</table></div>'
    if len(rows) <= _ROWS:
        return first
    more = f'<div class="scroll"><table>{head}{"".join(rows[_ROWS:])}</table></div>'
    return first + f"<details><summary>{len(rows) - _ROWS} {rest}</summary>{more}</details>"


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{title}</h2><p>{text}</p>{content}</section>"


def _legend(*entries: tuple[str, str]) -> str:
    signs = (f'<span><i style="border-color:var(--{kind})"></i>{text}</span>' for kind, text in entries)
    return f'<div class="legend">{"".join(signs)}</div>'


def _footer(plan: ModelPlan) -> str:
    times = (
        "estimated where they could not be measured" if plan.estimated else "measured once for each operator and shape"
    )
    stages = ", ".join(f"{stage} {overhead:.2%}" for stage, overhead in plan.graph_plan.stages)
    return f"Times of operations are {times}." + (f" Plan found by: {escape(stages)}." if stages else "")
