"""The heat equation on a rod, reversed with 4 and with 100 snapshots instead of 500.

Shows: the two functions that ``pb.adjoint`` asks for; one problem under three schedules, one of
them for a loop that does not know its length; snapshots in memory and on disk. Every line of the
table has the same norms: a schedule changes the memory and the work, never the gradient.

Run: python examples/heat.py
"""

import tempfile

import numpy as np

import pebbling as pb
from pebbling.store import Disk

POINTS, STEPS, LAMBDA = 100, 500, 0.5


def initial():
    """A cold rod, heated at its left end."""
    temperature = np.zeros(POINTS)
    temperature[0] = 20.0
    return temperature


def advance(temperature, step):
    """One explicit step; the two ends keep their temperature."""
    inside = temperature[1:-1] + LAMBDA * (temperature[:-2] - 2 * temperature[1:-1] + temperature[2:])
    return np.concatenate([temperature[:1], inside, temperature[-1:]])


def reverse(temperature, adjoint, step):
    """The transpose of ``advance``: each point hands its adjoint to those that it was computed from."""
    inside = LAMBDA * adjoint[1:-1]
    before = adjoint.copy()
    before[1:-1] -= 2 * inside
    before[:-2] += inside
    before[2:] += inside
    return before


def goes_on(temperature, step):
    """For ``Online``, which is asked before every step and learns the length at the end."""
    return step < STEPS


def gradient(schedule, store=None, start=None):
    """The final temperatures, and the gradient of their sum with respect to the first ones."""
    start = initial() if start is None else start
    steps = goes_on if isinstance(schedule, pb.Online) else STEPS
    return pb.adjoint(advance, reverse, start, steps, seed=np.ones(POINTS), schedule=schedule, store=store)


def heat_and_gradient(start):
    """The sum of the final temperatures and its gradient, for the Taylor test."""
    result = gradient(pb.Revolve(STEPS, 4), start=start)
    return result.state.sum(), result.adjoint


def schedules(slots):
    """One schedule of each kind with this many snapshots."""
    return pb.Revolve(STEPS, slots), pb.Periodic(STEPS, slots), pb.Online(slots)


def main():
    print("schedule                                       store   forwards  |T|                |dT[1:-1]|")
    for slots in (4, 100):
        for schedule in schedules(slots):
            with tempfile.TemporaryDirectory() as path, Disk(path) as disk:
                for name, store in (("memory", None), ("disk", disk)):
                    result = gradient(schedule, store)
                    norms = [np.linalg.norm(part) for part in (result.state, result.adjoint[1:-1])]
                    print(f"{schedule!r:46} {name:6} {result.report.forwards:9} {norms[0]:18.14f} {norms[1]:18.15f}")
    print("\nThe report of Revolve with 4 slots:")
    print(gradient(pb.Revolve(STEPS, 4)).report)
    print("\nTaylor test:")
    print(pb.taylor_test(heat_and_gradient, initial()))


if __name__ == "__main__":
    main()
