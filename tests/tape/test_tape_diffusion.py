"""The compiled diffusion solver: derivatives against differences, memory against the plan, and the script."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pebbling as pb

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL, STEPS = 40, 25


@pytest.fixture(scope="module")
def diffusion():
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module("diffusion")
    finally:
        sys.path.remove(str(EXAMPLES))


def test_the_rules_are_proven(diffusion):
    u, k, observed = diffusion.problem(SMALL)
    check = diffusion.step.check(u, k, rate=diffusion.RATE)
    assert check.passed, str(check)
    assert len(check.taylor) == 3
    assert diffusion.misfit.check(u, observed, wrt=[0]).passed
    assert not diffusion.misfit.check(u, observed).passed  # the rule says nothing of the observations


def test_the_gradient_equals_differences(diffusion):
    u, k, observed = diffusion.problem(SMALL)
    _, of_u, of_k = diffusion.gradient(u, k, observed, STEPS, slots=4)
    for point, gradient, at in ((u, of_u, 0), (k, of_k, 1)):
        for j in (0, 7, SMALL - 1):
            size = 1e-6 * np.eye(SMALL)[j]
            arguments = [[u, k], [u, k]]
            arguments[0][at], arguments[1][at] = point + size, point - size
            ahead, behind = (diffusion.gradient(*pair, observed, STEPS, slots=4)[0] for pair in arguments)
            assert gradient[j] == pytest.approx((ahead - behind) / 2e-6, rel=1e-7, abs=1e-9)


def test_the_hessian_equals_differences_of_gradients(diffusion):
    u, k, observed = diffusion.problem(SMALL)
    direction = np.cos(np.arange(SMALL))
    for budget in ({"slots": 4}, {"schedule": pb.StoreAll(STEPS)}):
        change = diffusion.hessian_times(u, k, observed, direction, STEPS, **budget)
        ahead, behind = (
            diffusion.gradient(u, k + sign * 1e-5 * direction, observed, STEPS, slots=4)[2] for sign in (1, -1)
        )
        np.testing.assert_allclose(change, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-9 * abs(change).max())


@pytest.mark.parametrize(("slots", "states"), [(4, 12), (8, 16), (16, 24)])
def test_the_peak_in_states(diffusion, slots, states):
    problem = diffusion.problem(100_000)
    assert diffusion.peak_in_states(diffusion.gradient, *problem, 40, slots=slots) <= states
    product = diffusion.peak_in_states(diffusion.hessian_times, *problem, problem[1], 40, slots=slots)
    assert product <= 2 * states + 5


def test_all_budgets_give_the_same_bits(diffusion):
    problem = diffusion.problem(SMALL)
    expected = diffusion.gradient(*problem, STEPS, schedule=pb.StoreAll(STEPS))
    for budget in ({"slots": 1}, {"slots": 4}, {"slots": 100}, {"memory": "1MiB"}, {"slots": 4, "keep": "none"}):
        found = diffusion.gradient(*problem, STEPS, **budget)
        assert all(np.array_equal(one, two) for one, two in zip(found, expected))


def test_the_script_runs_and_says_what_it_shows():
    path = EXAMPLES / "diffusion.py"
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=EXAMPLES, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "passed"
    assert not any("FAILED" in line for line in lines)
    assert any(line.startswith("forwards a step") for line in lines)
    header = path.read_text().split('"""')[1]
    assert "\nShows: " in header
    assert re.search(r"\nRun: .*python.* examples/diffusion\.py\n", header)
