"""Peaks, and what would lower them, on stories small enough to check by hand."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from pebbling.peaks import Life, ModuleCall, Moment, Story, Why
from pebbling.peaks.advice import checkpointed


def story(lives: list[Life], steps: int, turn: int, blocks: tuple[ModuleCall, ...] = ()) -> Story:
    """Operations that take nothing for themselves."""
    moments = []
    for at in range(steps):
        level = sum(life.bytes for life in lives if life.start < at and (life.end is None or at < life.end))
        top = sum(life.bytes for life in lives if life.at(at))
        moments.append(
            Moment(f"op{at}", phase="forward" if at < turn else "backward", level=level, top=max(level, top))
        )
    return Story(tuple(moments), tuple(lives), blocks)


# Two layers of two operations each, then the way back: layer b begins back at 4, layer a at 6.
LAYERS = [
    Life(10, 0, 8, "saved", "mul", "a", saved=1),
    Life(100, 1, 7, "saved", "sin", "a", saved=1),
    Life(10, 1, 7, "saved", "add", "a", saved=2),
    Life(100, 2, 5, "saved", "sin", "b", saved=3),
    Life(1, 3, 4, "temporary", "mul", "b"),
]
BLOCKS = (ModuleCall("a", "Layer", 0, 2, 6), ModuleCall("b", "Layer", 2, 4, 4))


def test_the_peak_is_found_with_what_is_alive_at_it() -> None:
    found = Why(story(LAYERS, 8, 4, BLOCKS), standing=5)
    assert found.peak == 221
    assert found.story.when == 3
    assert found.above == 216
    assert found.kinds == {"saved for the backward pass": 220, "temporaries": 1}
    assert [size for _, size in found.makers] == [100, 100, 10, 10, 1]


def test_a_block_that_runs_again_is_absent_until_its_backward_pass_and_then_takes_what_it_took() -> None:
    told = story(LAYERS, 8, 4, BLOCKS)
    peak, absent = checkpointed(told, BLOCKS[:1])
    # a keeps its result (10), which b saved, and nothing of its own (110) until 6, where it makes all of 120 again.
    assert [life.bytes for life in absent] == [10, 100]
    assert peak == max(120, 10 + 100 + 1, 10 + 120)
    late = (ModuleCall("a", "Layer", 0, 2, 6), ModuleCall("b", "Layer", 2, 4, 6))
    assert checkpointed(told, late)[0] == 10 + 120  # b's 101, made again beside a's result, are less


def test_what_is_not_alive_at_the_peak_does_not_help_and_is_said_not_to() -> None:
    late = [*LAYERS, Life(60, 6, None, "gradient", "mm", "a")]
    found = Why(story(late, 8, 4, BLOCKS))
    useless = next(each for each in found.advice if "gradient" in each.change)
    assert (useless.lowers, useless.alive, useless.bytes) == (0, 0, 60)
    assert "these 60 B are not alive at the peak" in str(found)


def test_a_second_peak_as_high_makes_a_change_worth_nothing() -> None:
    twins = [Life(100, 0, 2, "saved", "sin", "a", saved=0), Life(100, 3, 4, "gradient", "mm", "b")]
    found = Why(story(twins, 5, 2))
    assert all(each.lowers == 0 for each in found.advice if "gradient" in each.change)


def test_stretches_of_layers_are_one_line_with_a_star() -> None:
    layers = [Life(10, at, None, "saved", "sin", f"layers.{at}.act", "model.py:3") for at in range(4)]
    found = Why(story(layers, 5, 4))
    assert [(life.module, size) for life, size in found.makers] == [("layers.*.act", 40)]


def test_it_is_saved_for_every_viewer(tmp_path) -> None:
    found = Why(story(LAYERS, 8, 4, BLOCKS), name="<model>")
    page = found.save(tmp_path / "why.html").read_text()
    assert "&lt;model&gt; peaks at 221 B" in page
    assert "<model>" not in page
    assert "http" not in page
    assert json.loads(found.save(tmp_path / "why.json").read_text())["peak"] == 221
    trace = json.loads(found.save(tmp_path / "why.perfetto.json").read_text())["traceEvents"]
    assert max(event["args"]["bytes"] for event in trace if event["ph"] == "C") == 221
    entries = pickle.loads(found.save(tmp_path / "why.pickle").read_bytes())["device_traces"][0]
    level = peak = 0
    for entry in entries:
        level += entry["size"] * (1 if entry["action"] == "alloc" else -1)
        peak = max(peak, level)
    assert peak == 221
    with pytest.raises(ValueError, match=r"why\.txt.*expected a name that ends in \.html"):
        found.save(tmp_path / "why.txt")


def test_the_plugin_prints_the_peak_of_the_tests_that_ask(tmp_path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import numpy, pytest\n"
        "@pytest.mark.pebbling_peak\n"
        "def test_large(): numpy.zeros(1 << 20)\n"
        "def test_other(): numpy.zeros(1 << 20)\n"
    )
    command = [sys.executable, "-m", "pytest", "--strict-markers", "test_it.py"]  # installed with the package
    asked = subprocess.run([*command, "--pebbling-peak"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "test_it.py::test_large: Python and NumPy 8" in asked.stdout, asked.stdout
    assert "test_other:" not in asked.stdout
    silent = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "peaks of memory" not in silent.stdout
