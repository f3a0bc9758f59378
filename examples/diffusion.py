"""Nonlinear diffusion by a compiled solver with a hand-written adjoint, on a tape that keeps 8 states of 100.

Shows: a black box (here compiled by Numba; a Fortran or C routine looks the same) as an op with its own
vjp, jvp and vjp_dot; ``op.check``, which proves the rules; a plain Python loop on a tape; the gradient
and the Hessian-vector product in a few states, however many steps there are.

Run: python examples/diffusion.py
"""

import tracemalloc

import numba
import numpy as np

import pebbling as pb

POINTS, STEPS, RATE = 20_000, 100, 0.4


@numba.njit
def solve(conductivity, right, rate):
    """The y with y - rate d(c dy) = right: implicit Euler, closed ends, the Thomas algorithm."""
    size = right.size
    upper, y = np.empty(size), np.empty(size)
    before = 0.0
    for j in range(size):
        after = rate * 0.5 * (conductivity[j] + conductivity[j + 1]) if j < size - 1 else 0.0
        pivot = 1.0 + before + after + (before * upper[j - 1] if j else 0.0)
        y[j] = (right[j] + (before * y[j - 1] if j else 0.0)) / pivot
        upper[j] = -after / pivot
        before = after
    for j in range(size - 2, -1, -1):
        y[j] -= upper[j] * y[j + 1]
    return y


@numba.njit
def slopes(first, second, rate, into):
    """Add how <first, d(c d second)> depends on c, with the sign of an adjoint."""
    for j in range(first.size - 1):
        part = 0.5 * rate * (first[j + 1] - first[j]) * (second[j + 1] - second[j])
        into[j] -= part
        into[j + 1] -= part


@numba.njit
def divergence(conductivity, y, rate, into):
    """Add rate d(c dy), the part of the matrix that depends on c."""
    for j in range(y.size - 1):
        flow = 0.5 * rate * (conductivity[j] + conductivity[j + 1]) * (y[j + 1] - y[j])
        into[j] += flow
        into[j + 1] -= flow


@pb.op
def step(u, k, *, rate):
    """One step: the conductivity grows with the temperature, k (1 + u²)."""
    return solve(k * (1 + u * u), u, rate)


@step.vjp
def _(x, y, g, *, rate):
    u, k = x
    adjoint = solve(k * (1 + u * u), g, rate)
    of_k = np.zeros_like(u)
    slopes(adjoint, y, rate, of_k)
    adjoint += 2 * k * u * of_k
    of_k *= 1 + u * u
    return adjoint, of_k


@step.jvp
def _(x, y, dx, *, rate):
    (u, k), (du, dk) = x, dx
    right = du.copy()
    divergence(dk * (1 + u * u) + 2 * k * u * du, y, rate, right)
    return solve(k * (1 + u * u), right, rate)


@step.vjp_dot
def _(x, dx, y, dy, g, dg, *, rate):
    (u, k), (du, dk) = x, dx
    c, dc = k * (1 + u * u), dk * (1 + u * u) + 2 * k * u * du
    adjoint = solve(c, g, rate)
    right = dg.copy()
    divergence(dc, adjoint, rate, right)
    change = solve(c, right, rate)
    of_c, of_c_change = np.zeros_like(u), np.zeros_like(u)
    slopes(adjoint, y, rate, of_c)
    slopes(change, y, rate, of_c_change)
    slopes(adjoint, dy, rate, of_c_change)
    of_u = change + 2 * (k * u * of_c_change + (dk * u + k * du) * of_c)
    return of_u, of_c_change * (1 + u * u) + 2 * u * du * of_c


@pb.op
def misfit(u, observed):
    return 0.5 * np.sum((u - observed) ** 2)


@misfit.vjp
def _(x, y, g):
    return g * (x[0] - x[1]), None


@misfit.jvp
def _(x, y, dx):
    return np.sum((x[0] - x[1]) * dx[0])


def problem(points=POINTS):
    """The initial temperature, the conductivity that is sought, and what was observed."""
    at = np.linspace(0.0, 1.0, points)
    return np.exp(-100 * (at - 0.3) ** 2), 1.0 + 0.5 * np.sin(6 * at), 0.3 + 0.1 * np.cos(5 * at)


def record(u0, k0, observed, steps=STEPS, **budget):
    """The tape, the leaves u and k, and the misfit after the last step."""
    tape = pb.Tape(**budget)
    u = start = tape.leaf(u0)
    k = tape.leaf(k0)
    for _ in tape.loop(range(steps)):
        u = step(u, k, rate=RATE)
    return tape, start, k, misfit(u, observed)


def gradient(u0, k0, observed, steps=STEPS, **budget):
    """The misfit, and its gradients with respect to the initial temperature and the conductivity."""
    tape, u, k, result = record(u0, k0, observed, steps, **budget)
    found = tape.pullback(result)
    return result.value, found[u], found[k]


def hessian_times(u0, k0, observed, direction, steps=STEPS, **budget):
    """The Hessian of the misfit with respect to k, times a direction."""
    tape, _, k, result = record(u0, k0, observed, steps, **budget)
    return tape.hvp(result, {k: direction})[1][k]


def peak_in_states(function, *arguments, **options):
    """The most memory that a call allocates, in states."""
    function(*arguments, **options)
    tracemalloc.start()
    function(*arguments, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / arguments[0].nbytes


def main():
    u0, k0, observed = problem()
    print(step.check(u0[::100], k0[::100], rate=RATE))
    everything = gradient(u0, k0, observed, schedule=pb.StoreAll(STEPS))
    print("\nslots          states at the peak   same gradient, bit for bit")
    for budget in ({"schedule": pb.StoreAll(STEPS)}, {"slots": 4}, {"slots": 8}, {"slots": 16}):
        found = gradient(u0, k0, observed, **budget)
        same = all(np.array_equal(one, two) for one, two in zip(found, everything))
        peak = peak_in_states(gradient, u0, k0, observed, **budget)
        print(f"{budget.get('slots', 'all')!s:12} {peak:20.1f}   {same}")
    print(f"forwards a step with 8 slots: {pb.Revolve(STEPS, 8).cost.forwards / STEPS:.2f}")

    def value_and_gradient(k):
        value, _, of_k = gradient(u0[::100], k, observed[::100], slots=8)
        return value, of_k

    print("\nTaylor test:")
    print(pb.taylor_test(value_and_gradient, k0[::100], 0.1 * k0[::100]))


if __name__ == "__main__":
    main()
