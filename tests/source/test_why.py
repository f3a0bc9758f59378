"""`pb.why`: the peak of a gradient by line of the program, as Python's own meter sees it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import pebbling as pb

U = np.linspace(0.1, 1.0, 5000)


def drift(u):
    for _ in range(60):
        u = u + 0.01 * np.sin(u) * u
    return np.sum(u**2)


def helper(u):
    return np.tanh(u) * np.exp(u)


def in_a_callee(u):
    kept = [helper(u * k) for k in range(1, 20)]
    return sum(np.sum(one) for one in kept)


def measured(run):
    run()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def test_the_peak_is_that_of_the_gradient():
    assert pb.why(drift, U).peak == pytest.approx(measured(lambda: pb.grad(drift)(U)), rel=0.03)


def test_what_is_kept_is_told_by_line():
    found = pb.why(drift, U)
    life, size = found.makers[0]
    assert "np.sin(u)" in life.op
    assert life.line.startswith("test_why.py:")
    assert size > 0.9 * found.kinds["saved for the backward pass"]
    assert found.moment.phase == "backward"


def test_what_a_callee_keeps_is_told_by_its_own_line():
    life, size = pb.why(in_a_callee, U).makers[0]
    assert "np.tanh" in life.op
    assert size > 19 * U.nbytes


def test_advice_names_a_loop_and_what_it_would_take_checkpointed():
    found = pb.why(drift, U)
    advice = found.advice[0]
    assert advice.change.startswith("checkpoint the loop at line")
    checkpointed = measured(lambda: pb.grad(pb.checkpoint(drift))(U))
    assert checkpointed <= 1.05 * advice.peak
    assert advice.lowers == found.peak - advice.peak


def test_programs_of_many_lines_have_a_story_of_some_thousands():
    def long(u):
        for _ in range(9000):
            u = u + 1e-6
        return np.sum(u)

    found = pb.why(long, np.ones(3))
    assert len(found.story.moments) < 5000
    assert found.peak == pytest.approx(measured(lambda: pb.grad(long)(np.ones(3))), rel=0.2)


def test_the_page_and_the_command(tmp_path, monkeypatch, capsys):
    from pebbling.cli import main

    (tmp_path / "rod_of_why.py").write_text(
        "import numpy as np\n\ndef heat(u):\n    for _ in range(50):\n        u = u + 0.1 * np.sin(u) * u\n"
        "    return np.sum(u)\n\ndef example():\n    return heat, np.ones(2000)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["why", "rod_of_why:example", "--save", "why.html"]) == 0
    assert "rod_of_why.py:5" in capsys.readouterr().out
    assert "rod_of_why.py:5" in (tmp_path / "why.html").read_text()
