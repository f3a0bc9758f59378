"""A loop in a loop, each level with its own schedule.

The outer chain has 2 steps, each of which is an inner chain of 5 steps x ← 2·√x·√x, so the gradient
of the sum of the outcome is 2¹⁰ = 1024. The outer level keeps states between inner loops only; to
reverse one inner loop, its ``reverse`` calls ``pb.adjoint`` once more.

Shows: nested use, for programs whose natural unit (a day, an epoch) is a loop itself.

Run: python examples/multilevel.py
"""

import numpy as np

import pebbling as pb

OUTER, INNER = 2, 5


def advance(x, step):
    """One inner step."""
    return 2 * np.sqrt(x) * np.sqrt(x)


def reverse(x, adjoint, step):
    root = np.sqrt(x)
    of_root = 2 * root * adjoint + 2 * root * adjoint
    return of_root * 0.5 / root


def gradient(x, outer, inner):
    """The adjoint of the nested loops, ``outer`` and ``inner`` being the schedules of the two levels."""

    def advance_outer(x, step):
        for inner_step in range(INNER):
            x = advance(x, inner_step)
        return x

    def reverse_outer(x, adjoint, step):
        return pb.adjoint(advance, reverse, x, INNER, seed=adjoint, schedule=inner).adjoint

    return pb.adjoint(advance_outer, reverse_outer, x, OUTER, seed=np.ones_like(x), schedule=outer)


def schedules():
    """Pairs of schedules, the outer one first."""
    return [
        (pb.Periodic(OUTER, 1), pb.Revolve(INNER, 2)),
        (pb.Revolve(OUTER, 1), pb.Periodic(INNER, 2)),
        (pb.StoreAll(OUTER), pb.Mixed(INNER, 2)),
    ]


def sum_and_gradient(x):
    result = gradient(x, *schedules()[0])
    return result.state.sum(), result.adjoint


def main():
    x = np.array([2.0, 3.0, 4.0])
    for outer, inner in schedules():
        result = gradient(x, outer, inner)
        print(f"{outer} of {inner}: sum {result.state.sum()}, gradient {result.adjoint}")
    print("\nThe report of the outer level of the last:")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(sum_and_gradient, x))


if __name__ == "__main__":
    main()
