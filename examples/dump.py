"""States and adjoints written out on the way back, to be looked at later.

Ten steps x ← 2·√x·√x with 3 snapshots; every second step leaves a file with the state before it and
the adjoint of that state. What lies there for step 0 is the gradient, 2¹⁰ = 1024.

Shows: ``dump=`` and reading its files in another process or on another day.

Run: python examples/dump.py
"""

import tempfile

import numpy as np

import pebbling as pb
from multilevel import advance, reverse

STEPS, SLOTS, EVERY = 10, 3, 2


def gradient(x, path=None):
    """The adjoint of ten steps; with a path, every second state and adjoint goes there."""
    dump = None if path is None else pb.Dump(path, every=EVERY)
    return pb.adjoint(advance, reverse, x, STEPS, seed=np.ones_like(x), slots=SLOTS, dump=dump)


def sum_and_gradient(x):
    result = gradient(x)
    return result.state.sum(), result.adjoint


def main():
    x = np.array([2.0, 3.0, 4.0])
    with tempfile.TemporaryDirectory() as path:
        result = gradient(x, path)
        written = pb.Dump(path)
        for step in written.steps():
            state, adjoint = written.read(step)
            print(f"before step {step}: state {state}, adjoint {adjoint}")
    print(f"gradient: {result.adjoint}")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(sum_and_gradient, x))


if __name__ == "__main__":
    main()
