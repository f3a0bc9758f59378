"""Optimal control: the costate of an ODE by the adjoint of its Runge–Kutta steps, 4 snapshots for 100.

Minimise y₂(1) subject to y₁' = y₁/2 + u, y₂' = y₁² + u²/2, y(0) = (1, 0). The best control, the
path and the costate λ (the gradient of y₂(1) with respect to y(t)) are known in closed form, so the
second-order method can be held against them. At the optimum λ₁ = -u.

Shows: steps that depend on their index (the time), and intermediate stages that ``reverse``
computes again rather than keeps.

Run: python examples/optimal_control.py
"""

from math import exp

import numpy as np

import pebbling as pb

STEPS, SLOTS = 100, 4
WIDTH = 1.0 / STEPS
E3 = exp(3.0)


def control(time):
    """The optimal control."""
    return 2 * (exp(3 * time) - E3) / (exp(1.5 * time) * (2 + E3))


def exact_path(time):
    """The optimal y."""
    first = (2 * exp(3 * time) + E3) / (exp(1.5 * time) * (2 + E3))
    second = (2 * exp(3 * time) - exp(6 - 3 * time) - 2 + exp(6.0)) / (2 + E3) ** 2
    return np.array([first, second])


def exact_costate(time):
    """The optimal λ."""
    return np.array([-control(time), 1.0])


def slope(y, time):
    """The right-hand side of the ODE."""
    u = control(time)
    return np.array([0.5 * y[0] + u, y[0] ** 2 + 0.5 * u**2])


def slope_adjoint(y, adjoint):
    """The transposed derivative of ``slope`` times ``adjoint``."""
    return np.array([0.5 * adjoint[0] + 2 * y[0] * adjoint[1], 0.0])


def middle(y, step):
    """The state half a step further on, by Euler."""
    return y + WIDTH / 2 * slope(y, step * WIDTH)


def advance(y, step):
    """The midpoint rule."""
    return y + WIDTH * slope(middle(y, step), (step + 0.5) * WIDTH)


def reverse(y, adjoint, step):
    of_middle = slope_adjoint(middle(y, step), WIDTH * adjoint)
    return adjoint + of_middle + slope_adjoint(y, WIDTH / 2 * of_middle)


def costate(start=(1.0, 0.0), **budget):
    return pb.adjoint(advance, reverse, np.array(start), STEPS, seed=np.array([0.0, 1.0]), **budget)


def objective_and_gradient(start):
    result = costate(start, slots=SLOTS)
    return result.state[1], result.adjoint


def main():
    result = costate(slots=SLOTS)
    print(f"y(1) = {result.state}, exact {exact_path(1.0)}")
    print(f"λ(0) = {result.adjoint}, exact {exact_costate(0.0)}")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(objective_and_gradient, np.array([1.0, 0.0])))


if __name__ == "__main__":
    main()
