"""The demo: what it promises about memory and gradients is what it measures, and its pictures show it."""

from __future__ import annotations

import base64
import re
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

from pebbling.demo import demo
from pebbling.demo.image import image
from pebbling.demo.watch import watch
from pebbling.units import parse_bytes


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The whole demo, once: what it said, and the folder of its pictures."""
    folder, said = tmp_path_factory.mktemp("demo"), []
    pictures = demo(folder / "pictures", said.append)
    assert pictures == [folder / "pictures" / "wave.svg", folder / "pictures" / "plan.svg"]
    return "\n".join(said), folder / "pictures"


def said_bytes(text, name):
    return parse_bytes(re.search(rf"^{name} +([\d.]+ \w+)", text, re.MULTILINE).group(1))


def test_the_gradient_takes_less_than_the_plan_and_a_hundredth_of_storing_everything(shown):
    text, _ = shown
    measured, planned = said_bytes(text, "measured peak"), said_bytes(text, "planned peak")
    budget, everything = said_bytes(text, "budget"), said_bytes(text, "storing everything")
    assert measured <= planned <= budget
    assert budget == pytest.approx(0.01 * everything, rel=0.01)
    assert measured <= 0.01 * everything


def test_the_gradient_is_that_of_storing_everything_and_passes_the_taylor_test(shown):
    text, _ = shown
    assert "equal to the last bit" in text
    assert text.splitlines().count("passed") == 1


def test_the_picture_shows_the_fields_the_gradient_and_both_runs(shown):
    _, folder = shown
    drawing = ElementTree.parse(folder / "wave.svg").getroot()
    assert len(drawing.findall(".//{*}image")) == 4
    words = {element.text for element in drawing.findall(".//{*}text")}
    assert {"Its gradient", "Memory over time", "storing everything", "within the budget", "microphone"} <= words
    assert "prefers-color-scheme:dark" in drawing.find(".//{*}style").text
    curves = [path for path in drawing.findall(".//{*}path") if "curve" in path.get("class")]
    assert len(curves) == 3
    assert (folder / "plan.svg").exists()


def test_an_image_is_coloured_by_sign_and_seen_through_where_there_is_nothing(tmp_path):
    address = image(np.array([[0.0, 2.0, -2.0], [1.0, -1.0, 9.0]]), largest=2.0)
    path = Path(tmp_path) / "field.png"
    path.write_bytes(base64.b64decode(address.partition(",")[2]))
    pixels = matplotlib.image.imread(path)
    assert pixels.shape == (2, 3, 4)
    assert pixels[0, 0, 3] == 0.0
    assert pixels[0, 1, 3] == pixels[0, 2, 3] == pixels[1, 2, 3] == 1.0
    assert 0.0 < pixels[1, 0, 3] == pixels[1, 1, 3] < 1.0
    assert pixels[0, 1, 0] > 0.8 > pixels[0, 2, 0]


def test_watching_counts_what_the_call_takes_and_not_the_looking():
    def call():
        first = np.ones(1_000_000)
        for _ in range(40):
            first = np.sqrt(first)
        return float(first[0])

    seen = watch(call)
    assert seen.result == 1.0
    assert 16_000_000 <= seen.peak <= 16_100_000
    assert seen.curve[0].tolist() == [0.0, 0.0]
    assert (np.diff(seen.curve[:, 0]) >= 0).all()
    assert seen.curve[:, 1].max() <= seen.peak
    assert not tracemalloc.is_tracing()
