"""The page of a plan: self-contained, with the figures of the plan; plans as files."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from fit_cases import GPT, captured

from pebbling.graph import check
from pebbling.torch import plan
from pebbling.torch.models import ModelPlan
from pebbling.torch.models.facts import at_peak, curve, modules, trade_off
from pebbling.torch.models.report import page


@pytest.fixture(scope="module")
def made() -> ModelPlan:
    torch.manual_seed(0)
    model, tokens = GPT(layers=3, width=32, words=23), torch.randint(23, (4, 16))
    everything = plan(model, tokens)
    return plan(model, tokens, memory=0.7 * everything.peak, time_limit=2)


class Tags(HTMLParser):
    """Counts tags, and collects what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_stands_on_its_own_and_shows_the_plan(made: ModelPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    made.report(path)
    text = path.read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.loaded == []
    assert "script" not in tags.tags
    assert tags.tags.count("svg") == 2
    assert tags.tags.count("table") >= 2
    assert "prefers-color-scheme:dark" in text
    assert f"{made.overhead:.2%}" in text
    assert "blocks.0" in text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_a_fitted_model_writes_its_page(tmp_path: Path) -> None:
    fitted = captured(GPT(layers=1), time_limit=1)
    fitted(torch.randint(11, (2, 5))).backward()
    fitted.report(tmp_path / "plan.html")
    assert "without any replay" in (tmp_path / "plan.html").read_text()


def test_the_facts_of_the_page_are_those_of_the_machine(made: ModelPlan) -> None:
    chosen = made.graph_plan
    assert curve(chosen).peak == check(chosen).peak == made.peak
    assert curve(chosen).times[-1] == pytest.approx(chosen.time)
    assert sum(each.bytes for each in at_peak(chosen)) == made.peak
    shares = modules(chosen)
    again = sum(share.replayed for share in shares)
    assert again == pytest.approx(made.overhead * made.graph.time)
    assert sum(share.kept for share in shares) == sum(made.graph.storage[name].bytes for name in made.kept)


def test_the_trade_off_falls_and_stays_above_its_bound(made: ModelPlan) -> None:
    points = trade_off(made.graph_plan, 1.0, points=4)
    overheads, bounds = [point.overhead for point in points], [point.bound for point in points]
    assert overheads == sorted(overheads, reverse=True)
    assert bounds == sorted(bounds, reverse=True)
    assert all(bound <= overhead + 1e-9 for bound, overhead in zip(bounds, overheads))
    assert overheads[0] > overheads[-1] == 0


def test_plans_are_saved_and_loaded(made: ModelPlan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json.gz")
    assert ModelPlan.load(tmp_path / "plan.json.gz").graph_plan == made.graph_plan


def test_the_shares_of_the_page_are_all_of_the_same_whole(made: ModelPlan) -> None:
    """A loss in parts adds time that the graph's own overhead knows nothing of."""
    slower = replace(made, plain=0.9 * made.graph.time)
    assert slower.overhead > made.overhead + 0.1
    text = page(slower, seconds=0.5)
    points = [float(each) for each in re.findall(r"<title>[^:<]*: ([0-9.]+)% more time", text)]
    assert max(points) >= 100 * slower.overhead - 0.01
    assert min(points) >= 100 * slower.in_parts - 0.01 > 10
