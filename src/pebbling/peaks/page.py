"""One self-contained page about a peak: bytes over the step, what is alive at the peak as a flame, tables that sort."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from ..units import format_bytes
from .report import _NAMES

if TYPE_CHECKING:
    from .report import Why

_COLOURS = {
    "parameter": "#7a869a",
    "buffer": "#a3adbd",
    "batch": "#8d6cab",
    "argument": "#7a869a",
    "gradient": "#c8553d",
    "optimizer": "#b58a2a",
    "saved": "#2f7fc1",
    "output": "#3aa17e",
    "result": "#3aa17e",
    "temporary": "#d98c00",
    "other": "#c3c9d3",
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 300, 70, 30
_POINTS = 1200  # of the curve: more than a screen shows
_STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6675;--grid:#e4e8ee;--mark:#b9388f}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--card:#151b24;--ink:#e8ecf2;--soft:#98a4b3;--grid:#28313d;
--mark:#ef86c6}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;
font-variant-numeric:tabular-nums}main{max-width:1040px;margin:0 auto;padding:32px 20px 60px}
h1{font-size:23px;margin:0 0 4px}h2{font-size:16px;margin:0 0 6px}p{margin:0 0 10px;color:var(--soft)}
section{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:18px 20px;margin-top:18px}
svg{display:block;width:100%;height:auto}.tick{fill:var(--soft);font-size:12px}.grid{stroke:var(--grid)}
.mark{stroke:var(--mark);stroke-dasharray:5 4}.legend{display:flex;flex-wrap:wrap;gap:4px 16px;color:var(--soft);
font-size:13px;margin:8px 0 0}.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;
vertical-align:-1px}.flame text{font-size:11px;fill:#fff;pointer-events:none}.flame rect{stroke:var(--card)}
.scroll{overflow-x:auto}table{width:100%;border-collapse:collapse;font-size:13.5px}th{cursor:pointer;text-align:left;
color:var(--soft);font-weight:500;padding:6px 8px;border-bottom:1px solid var(--grid);white-space:nowrap}
td{padding:6px 8px;border-bottom:1px solid var(--grid);overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap}
.none{color:var(--soft)}#tip{position:fixed;display:none;background:var(--ink);color:var(--page);padding:5px 9px;
border-radius:6px;font-size:12.5px;pointer-events:none;max-width:420px;z-index:9}
@media(max-width:600px){main{padding:20px 10px}.tick{font-size:22px}.flame text{font-size:18px}}
"""
_SCRIPT = """
const tip=document.getElementById('tip');
document.addEventListener('mousemove',e=>{const t=e.target.closest&&e.target.closest('[data-tip]');
 if(!t){tip.style.display='none';return}
 tip.textContent=t.dataset.tip;tip.style.display='block';
 tip.style.left=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8)+'px';tip.style.top=(e.clientY+16)+'px'});
const curve=document.getElementById('curve'),points=JSON.parse(document.getElementById('points').textContent);
if(curve)curve.addEventListener('mousemove',e=>{const b=curve.getBoundingClientRect(),
 x=(e.clientX-b.left)/b.width*WIDTH,i=Math.floor((x-LEFT)/(WIDTH-LEFT)*points.length);
 if(i>=0&&i<points.length)curve.dataset.tip=points[i]});
document.querySelectorAll('th').forEach((th,i)=>th.addEventListener('click',()=>{
 const table=th.closest('table'),k=[...th.parentNode.children].indexOf(th),up=th.dataset.up!=='1';
 th.dataset.up=up?'1':'0';
 const value=r=>{const c=r.children[k];return c.dataset.v!==undefined?+c.dataset.v:c.textContent};
 [...table.querySelectorAll('tr')].slice(1).sort((a,b)=>{const x=value(a),y=value(b);
 return (x<y?-1:x>y?1:0)*(up?1:-1)}).forEach(r=>r.parentNode.appendChild(r))}));
"""


def page(why: Why) -> str:
    """The page, as HTML that needs nothing from elsewhere."""
    name = escape(why.name)
    if not why.story.moments:
        return f"<!doctype html><title>{name}</title><p>{escape(str(why))}</p>"
    moment = why.moment
    where = f"{moment.phase}, {moment.op}" + (f" of {moment.module}" if moment.module else "")
    script = _SCRIPT.replace("WIDTH", str(_WIDTH)).replace("LEFT", str(_LEFT))
    points = json.dumps(_texts(why)).replace("<", "\\u003c")
    parts = [
        _section("Bytes over the step", "Every operation in its order; the dashed line is the peak.", _curve(why)),
        _section("Alive at the peak, by module", "Widths are bytes. Point at a part to read it.", _flame(why)),
        _section("What made it", "A click on a head sorts.", _makers(why)),
        _section(
            "What would lower the peak, and what would not",
            "Each change alone, worked out from what was alive when. 0 means that another moment is as high.",
            _advice(why),
        ),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}: why the peak is here</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style><main>'
        f"<h1>{name} peaks at {format_bytes(why.peak)}</h1><p>In {escape(where)} {escape(moment.line)}; "
        f"{format_bytes(why.standing)} were there before the step. {escape(_caveat(why))}</p>"
        f'{"".join(parts)}</main><div id="tip"></div>'
        f'<script type="application/json" id="points">{points}</script><script>{script}</script></html>\n'
    )


def framed(why: Why) -> str:
    """The page inside of another one, as notebooks show it."""
    return f'<iframe srcdoc="{escape(page(why), quote=True)}" style="width:100%;height:720px;border:0"></iframe>'


def _caveat(why: Why) -> str:
    return "" if why.measured else "Tensors were counted, not allocations: what kernels take for themselves is missing."


def _curve(why: Why) -> str:
    story, top = why.story, 1.06 * max(why.peak, 1)
    count = len(story.moments)
    step = max(1, count // _POINTS)
    bins = range(0, count, step)
    width = (_WIDTH - _LEFT) / len(bins)
    bottom = _HEIGHT - _BOTTOM
    heights = [0.0] * len(bins)
    areas = []
    for kind, colour in _COLOURS.items():
        levels = story.levels(life for life in story.lives if life.kind == kind)
        if not levels.any():
            continue
        lower = list(heights)
        for i, start in enumerate(bins):
            heights[i] += float(levels[start : start + step].max()) / top * bottom
        areas.append(f'<path fill="{colour}" d="{_area(lower, heights, width, bottom)}"/>')
    tops = [float(story.tops[start : start + step].max()) / top * bottom for start in bins]
    areas.append(f'<path fill="{_COLOURS["temporary"]}" opacity=".35" d="{_area(heights, tops, width, bottom)}"/>')
    x = _LEFT + (story.when / step + 0.5) * width
    ticks = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{format_bytes(share * top)}</text>'
        for share in (0.25, 0.5, 0.75, 1.0)
        for y in [bottom - share * bottom + (12 if share == 1 else 0)]
    )
    turn = next((i for i, moment in enumerate(story.moments) if moment.phase == "backward"), None)
    names = ((0, "forward"), (turn, "backward")) if turn else ((0, "forward"),)
    below = "".join(
        f'<text class="tick" x="{_LEFT + at / step * width:.0f}" y="{_HEIGHT - 8}">{text}</text>'
        for at, text in names
        if at is not None
    )
    svg = (
        f'<svg id="curve" data-tip="" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Bytes over the step">'
        f'{ticks}{"".join(areas)}<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom}"/>{below}</svg>'
    )
    shown = {life.kind for life in story.lives} | {"temporary"}
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{_NAMES[kind]}</span>'
        for kind, colour in _COLOURS.items()
        if kind in shown
    )
    return f'{svg}<div class="legend">{legend}</div>'


def _area(lower: list[float], upper: list[float], width: float, bottom: int) -> str:
    there = "".join(
        f"L{_LEFT + i * width:.1f},{bottom - y:.1f}H{_LEFT + (i + 1) * width:.1f}" for i, y in enumerate(upper)
    )
    back = "".join(
        f"L{_LEFT + (i + 1) * width:.1f},{bottom - lower[i]:.1f}H{_LEFT + i * width:.1f}"
        for i in reversed(range(len(lower)))
    )
    return f"M{_LEFT},{bottom - lower[0]:.1f}{there}{back}Z"


def _texts(why: Why) -> list[str]:
    """What the curve says where the pointer is."""
    count = len(why.story.moments)
    step = max(1, count // _POINTS)
    texts = []
    for start in range(0, count, step):
        moment = max(why.story.moments[start : start + step], key=lambda each: each.top)
        texts.append(f"{format_bytes(moment.top)}: {moment.phase}, {moment.op} {moment.module} {moment.line}".strip())
    return texts


def _flame(why: Why) -> str:
    """Module paths as rows, from the model down to its operations."""
    tree: dict[str, Any] = {"bytes": 0, "parts": {}}
    for life in why.story.alive:
        path = [*(life.module.split(".") if life.module else []), life.op or _NAMES[life.kind]]
        node = tree
        node["bytes"] += life.bytes
        for name in path:
            node = node["parts"].setdefault(name, {"bytes": 0, "parts": {}, "kind": life.kind})
            node["bytes"] += life.bytes
    rows: list[str] = []
    depth = _lay(tree, why.name, 0.0, float(_WIDTH), 0, rows)
    height = 20 * (depth + 1)
    return f'<svg class="flame" viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(rows)}</svg>'


def _lay(node: dict[str, Any], name: str, x: float, width: float, depth: int, rows: list[str]) -> int:
    if width < 0.7 or depth > 14:
        return depth
    colour = _COLOURS[node.get("kind", "other")]
    shade = max(0.55, 1 - 0.04 * depth)
    text = escape(name[: int(width / 7)]) if width > 24 else ""
    rows.append(
        f'<g><rect data-tip="{escape(name, quote=True)}: {format_bytes(node["bytes"])}" x="{x:.1f}" y="{20 * depth}" '
        f'width="{width:.1f}" height="19" fill="{colour}" opacity="{shade:.2f}"/>'
        f'<text x="{x + 4:.1f}" y="{20 * depth + 13}">{text}</text></g>'
    )
    deepest = depth
    for each, part in sorted(node["parts"].items(), key=lambda item: -item[1]["bytes"]):
        share = width * part["bytes"] / max(node["bytes"], 1)
        deepest = max(deepest, _lay(part, each, x, share, depth + 1, rows))
        x += share
    return deepest


def _makers(why: Why) -> str:
    rows = "".join(
        f'<tr><td class="n" data-v="{size}">{format_bytes(size)}</td><td>{_NAMES[life.kind]}</td>'
        f"<td>{escape(life.module)}</td><td>{escape(life.op)}</td><td>{escape(life.line)}</td>"
        f"<td>{escape(life.saver)}</td></tr>"
        for life, size in why.makers[:200]
    )
    head = '<tr><th class="n">bytes<th>what<th>module<th>operation<th>line<th>kept by</tr>'
    return f'<div class="scroll"><table>{head}{rows}</table></div>'


def _advice(why: Why) -> str:
    rows = "".join(
        f'<tr class="{"" if each.lowers else "none"}"><td>{escape(each.change)}</td>'
        f'<td class="n" data-v="{each.lowers}">{format_bytes(each.lowers)}</td>'
        f'<td class="n" data-v="{each.peak}">{format_bytes(each.peak)}</td>'
        f'<td class="n" data-v="{each.bytes}">{format_bytes(each.bytes)}</td></tr>'
        for each in why.advice
    )
    head = '<tr><th>change<th class="n">lowers the peak by<th class="n">peak then<th class="n">moves or saves</tr>'
    return f'<div class="scroll"><table>{head}{rows}</table></div>'


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{title}</h2><p>{text}</p>{content}</section>"
