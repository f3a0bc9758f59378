"""``op.check`` passes right rules and finds each kind of wrong one."""

from __future__ import annotations

import numpy as np
import pytest

import pebbling as pb

U, K = np.linspace(0.2, 1.3, 7), np.linspace(1.4, 0.6, 7)


def make(**wrong):
    """u³ k + sin(c u) with all its rules; ``wrong`` replaces some."""

    @pb.op
    def cubic(u, k, *, c):
        return u**3 * k + np.sin(c * u)

    rules = {
        "vjp": lambda x, y, g, *, c: (g * (3 * x[0] ** 2 * x[1] + c * np.cos(c * x[0])), g * x[0] ** 3),
        "jvp": lambda x, y, dx, *, c: (3 * x[0] ** 2 * x[1] + c * np.cos(c * x[0])) * dx[0] + x[0] ** 3 * dx[1],
        "vjp_dot": lambda x, dx, y, dy, g, dg, *, c: (
            dg * (3 * x[0] ** 2 * x[1] + c * np.cos(c * x[0]))
            + g * ((6 * x[0] * x[1] - c * c * np.sin(c * x[0])) * dx[0] + 3 * x[0] ** 2 * dx[1]),
            dg * x[0] ** 3 + 3 * g * x[0] ** 2 * dx[0],
        ),
        **wrong,
    }
    for name, rule in rules.items():
        getattr(cubic, name)(rule)
    return cubic


def failures(check):
    return [line.split("  ")[0] for line in check.lines if "FAILED" in line]


def test_right_rules_pass():
    check = make().check(U, K, c=1.5)
    assert check.passed
    assert bool(check)
    assert all(taylor.passed for taylor in check.taylor.values())
    assert len(check.taylor) == 3
    assert str(check).startswith("op cubic\n")


@pytest.mark.parametrize(
    ("name", "rule", "found"),
    [
        ("vjp", lambda x, y, g, *, c: (g * (3 * x[0] ** 2 * x[1]), g * x[0] ** 3), "vjp, Taylor test"),
        ("vjp", lambda x, y, g, *, c: (None, g * x[0] ** 3), "vjp, Taylor test"),
        ("jvp", lambda x, y, dx, *, c: x[0] ** 3 * dx[1], "jvp, Taylor test"),
        ("vjp_dot", lambda x, dx, y, dy, g, dg, *, c: (dg, dg), "vjp_dot, Taylor test"),
    ],
)
def test_wrong_rules_fail(name, rule, found):
    check = make(**{name: rule}).check(U, K, c=1.5)
    assert not check.passed
    assert found in failures(check)
    if name in ("vjp", "jvp"):
        assert any(line.startswith("vjp against jvp") for line in failures(check))


def test_bad_habits_are_found():
    buffer = np.empty(7)
    times = []

    @pb.op
    def careless(u):
        u += 0.0 * u + 1e-3
        times.append(1)
        np.multiply(u, 1 + 1e-9 * len(times), out=buffer)
        return buffer

    check = careless.check(U.copy())
    assert [line.removeprefix("the function ") for line in failures(check)] == [
        "leaves its inputs as they are",
        "returns new arrays each time",
        "gives the same twice",
    ]
    assert sum("not given" in line for line in check.lines) == 3


def test_single_precision_and_complex_numbers():
    check = make().check(U.astype(np.float32), K.astype(np.float32), c=np.float32(1.5))
    assert check.passed, str(check)
    square = pb.op(lambda z: z * z)
    square.vjp(lambda x, y, g: 2 * np.conj(x[0]) * g)
    square.jvp(lambda x, y, dx: 2 * x[0] * dx[0])
    check = square.check(U + 1j * K)
    assert check.passed, str(check)


def test_linear_ops_pass():
    roll = pb.op(lambda u: np.roll(u, 1))
    roll.vjp(lambda x, y, g: np.roll(g, -1))
    roll.jvp(lambda x, y, dx: np.roll(dx[0], 1))
    roll.vjp_dot(lambda x, dx, y, dy, g, dg: np.roll(dg, -1))
    check = roll.check(U)
    assert check.passed, str(check)
