"""A three-box model of the thermohaline circulation: 10 000 steps of 10 days with 500 snapshots.

Warm surface water (box 0) sinks in the polar box (1) and comes back through the deep ocean (2);
density differences drive the flow that carries heat and salt from box to box. Leapfrog steps need
two states, the one now and the one before, and Robert's filter smooths the latter.

Shows: a state of several arrays (a tuple), a nonlinear step with a hand-written adjoint, and a long
chain whose gradient says how the temperature after 274 years depends on the salt at its beginning.

Run: python examples/box_model.py
"""

import numpy as np

import pebbling as pb

STEPS, SLOTS = 10_000, 500

DAY = 86_400.0  # all units are SI, temperatures in degrees Celsius
YEAR = 365 * DAY
TIME_STEP = 10 * DAY
FILTER = 0.25

LENGTH = np.array([5e6, 1e6, 5e6])
DEPTH = np.array([1e3, 5e3, 4e3])
WIDTH = 4e6
AREA = LENGTH * WIDTH
VOLUME = AREA * DEPTH

# The flow is proportional to the density of the polar box minus the mean of the two others.
SHARE = DEPTH[0] / (DEPTH[0] + DEPTH[2])
CONTRAST = np.array([-SHARE, 1.0, SHARE - 1.0])
EXPANSION = np.array([[-1.668e-4], [7.811e-4]])  # of density with temperature, with salinity
FLOW = 16e6 / 4e-4 * EXPANSION * CONTRAST

# The air pulls at the surface temperatures; rain moves salt from the polar box to the warm one.
PULL = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]) / (300 * DAY)
AIR = np.array([[22.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
RAIN = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]]) * 35.0 * AREA[0] / YEAR / VOLUME

# Where the water of each box comes from, and where it goes.
SINKING = [2, 0, 1], [1, 2, 0]
RISING = SINKING[::-1]


def initial():
    """Temperatures and salinities, a row each, a column a box; now and one step before."""
    boxes = np.array([[20.0, 1.0, 1.0], [35.5, 34.5, 34.5]])
    return boxes, boxes.copy()


def tendency(boxes):
    """Change of temperatures and salinities per second."""
    flow = (FLOW * boxes).sum()
    source, _ = SINKING if flow > 0 else RISING
    return abs(flow) * (boxes[:, source] - boxes) / VOLUME + PULL * (AIR - boxes) + RAIN


def tendency_adjoint(boxes, adjoint):
    """The transposed derivative of ``tendency`` times ``adjoint``."""
    flow = (FLOW * boxes).sum()
    source, target = SINKING if flow > 0 else RISING
    carried = adjoint / VOLUME
    of_flow = np.sign(flow) * (carried * (boxes[:, source] - boxes)).sum()
    return of_flow * FLOW + abs(flow) * (carried[:, target] - carried) - PULL * adjoint


def advance(state, step):
    """One leapfrog step, the present smoothed by the filter as it becomes the past."""
    now, old = state
    new = old + 2 * TIME_STEP * tendency(now)
    return new, now + FILTER * (new - 2 * now + old)


def reverse(state, adjoint, step):
    now, _ = state
    of_new, of_past = adjoint
    of_new = of_new + FILTER * of_past
    of_now = (1 - 2 * FILTER) * of_past + 2 * TIME_STEP * tendency_adjoint(now, of_new)
    return of_now, FILTER * of_past + of_new


def final_temperature(state):
    """What is differentiated: the smoothed temperature of the warm box."""
    return state[1][0, 0]


def gradient(start=None, **budget):
    seed = np.zeros((2, 3)), np.zeros((2, 3))
    seed[1][0, 0] = 1.0
    return pb.adjoint(advance, reverse, initial() if start is None else start, STEPS, seed, **budget)


def temperature_and_gradient(start):
    result = gradient(start, slots=SLOTS)
    return final_temperature(result.state), result.adjoint


def main():
    result = gradient(slots=SLOTS)
    of_now, of_old = result.adjoint
    print(f"temperature of the warm box after {STEPS * TIME_STEP / YEAR:.0f} years: {final_temperature(result.state)}")
    print(f"its gradient with respect to the salinity of the polar box: {of_now[1, 1]} now, {of_old[1, 1]} before")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(temperature_and_gradient, initial()))


if __name__ == "__main__":
    main()
