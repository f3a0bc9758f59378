"""Burgers' equation in two dimensions: a gradient of 8192 numbers within a budget in bytes.

Two velocities on a periodic 64×64 grid carry each other around and diffuse; central differences,
explicit steps. Keeping all 200 states would take 12.5 MiB. The run is told to stay within 2 MiB,
measures its first step, and plans the least recomputation that fits.

Shows: ``memory=``, and that the budget holds for what Python's own tracer measures: not only the
snapshots, but also whatever the steps allocate on their way.

Run: python examples/burgers.py
"""

import tracemalloc

import numpy as np

import pebbling as pb
from pebbling.units import format_bytes, parse_bytes

SIZE, STEPS, BUDGET = 64, 200, "2MiB"
SPACING, TIME_STEP, VISCOSITY = 1.0 / SIZE, 1e-3, 0.01


def initial():
    """Two crossing waves: velocities along x (first axis) and along y."""
    x, y = np.meshgrid(*[np.arange(SIZE) * SPACING * 2 * np.pi] * 2, indexing="ij")
    return np.stack([1 + np.sin(x) * np.cos(y), 0.5 - np.cos(x) * np.sin(y)])


def difference(field, axis):
    """The central difference along an axis; its transpose is its negative."""
    return (np.roll(field, -1, axis) - np.roll(field, 1, axis)) / (2 * SPACING)


def laplacian(field):
    """The five-point Laplacian, which is its own transpose."""
    total = -4 * field
    for axis in (0, 1):
        total += np.roll(field, 1, axis)
        total += np.roll(field, -1, axis)
    return total / SPACING**2


def advance(velocity, step):
    u, v = velocity
    after = np.empty_like(velocity)
    for field, new in zip(velocity, after):
        change = VISCOSITY * laplacian(field)
        change -= u * difference(field, 0)
        change -= v * difference(field, 1)
        new[:] = field + TIME_STEP * change
    return after


def reverse(velocity, adjoint, step):
    u, v = velocity
    before = np.empty_like(adjoint)
    for of_field, of_old in zip(adjoint, before):
        change = VISCOSITY * laplacian(of_field)
        change += difference(u * of_field, 0)
        change += difference(v * of_field, 1)
        of_old[:] = of_field + TIME_STEP * change
    for field, of_field in zip(velocity, adjoint):
        for axis in (0, 1):
            before[axis] -= TIME_STEP * of_field * difference(field, axis)
    return before


def energy(velocity):
    """The kinetic energy, which is what is differentiated."""
    return 0.5 * SPACING**2 * (velocity**2).sum()


def gradient(start=None, **budget):
    start = initial() if start is None else start
    return pb.adjoint(advance, reverse, start, STEPS, seed=lambda velocity: SPACING**2 * velocity, **budget)


def energy_and_gradient(start):
    result = gradient(start, memory=BUDGET)
    return energy(result.state), result.adjoint


def measured_peak(run):
    """What ``run()`` gives, and the most bytes that were allocated at once above what was there before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = run()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def main():
    start = initial()
    result, peak = measured_peak(lambda: gradient(start, memory=BUDGET))
    everything, full_peak = measured_peak(lambda: gradient(start, schedule=pb.StoreAll(STEPS)))
    print(f"energy {energy(start):.6f} at the start, {energy(result.state):.6f} after {STEPS} steps")
    print(f"measured peak {format_bytes(peak)} of a budget of {format_bytes(parse_bytes(BUDGET))}")
    print(f"storing everything: measured peak {format_bytes(full_peak)}")
    print(f"gradients equal bit for bit: {result.adjoint.tobytes() == everything.adjoint.tobytes()}")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(energy_and_gradient, start))


if __name__ == "__main__":
    main()
