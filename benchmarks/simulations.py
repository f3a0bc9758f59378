"""Simulations in packages of others, within a budget: the bits of keeping everything, or not.

    python benchmarks/simulations.py --save FILE

Each program is written as its package's users write it. A package that is not installed is named as such. Times are of
one run each, of a small problem: they tell what replays cost, not what the packages can.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np

import pebbling as pb


def own_adjoint(step, back, state, steps, slots):
    """A pair of functions: what storing everything gives, and what ``slots`` give."""
    seed = np.ones_like(state)
    return tuple(
        lambda schedule=schedule: (lambda found: [np.asarray(found.state), np.asarray(found.adjoint)])(
            pb.adjoint(step, back, state, steps, seed, schedule=schedule, verify="all")
        )
        for schedule in (pb.StoreAll(steps), pb.Revolve(steps, slots))
    )


def deepwave():
    """An acoustic shot, 20 segments of 20 time steps."""
    import deepwave
    import torch

    from pebbling.torch import loop

    torch.manual_seed(0)
    size, steps, segment = 60, 400, 20
    speed = (1500 + 300 * torch.rand(size, size)).requires_grad_()
    pulse = deepwave.wavelets.ricker(25, steps, 0.001, 0.04).reshape(1, 1, -1)
    sources = torch.tensor([[[5, 30]]])
    receivers = torch.stack([torch.full((size,), 8), torch.arange(size)], -1)[None]

    def propagate(speed, pulse, before):
        return deepwave.scalar(
            speed, 5.0, 0.001, source_amplitudes=pulse, source_locations=sources, receiver_locations=receivers,
            pml_freq=25.0, max_vel=2000.0, initial_state=before,
        )  # fmt: skip

    def one(i, state, speed):
        loss, waves, auxiliary = state
        before = {"wavefield_0": waves[0], "wavefield_m1": waves[1], "auxiliary_state": auxiliary}
        out = propagate(speed, pulse[:, :, i * segment : (i + 1) * segment], before)
        loss = loss + (out.receiver_amplitudes**2).sum()
        return loss, (out.wavefield_0, out.wavefield_m1), out.auxiliary_state

    with torch.no_grad():
        rest = propagate(speed, 0 * pulse[:, :, :1], None)
    start = torch.zeros(()), (0 * rest.wavefield_0, 0 * rest.wavefield_m1), rest.auxiliary_state

    def gradient(run):
        speed.grad = None
        loss = run()
        loss.backward()
        return [loss.detach().numpy(), speed.grad.numpy().copy()]

    def plain():
        state = start
        for i in range(steps // segment):
            state = one(i, state, speed)
        return state[0]

    return lambda: gradient(plain), lambda: gradient(lambda: loop(one, start, steps // segment, speed, slots=4)[0])


def torchdiffeq():
    """A neural ODE by dopri5."""
    import torch
    from torchdiffeq import odeint

    from pebbling.adapters.torchdiffeq import checkpointed

    torch.manual_seed(0)
    field = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    start, times = torch.randn(32, 8), torch.linspace(0, 5, 11)

    def gradient(solve):
        field.zero_grad()
        y = solve()
        (y**2).mean().backward()
        return [y.detach().numpy(), *[p.grad.numpy().copy() for p in field.parameters()]]

    def solve():
        return odeint(lambda t, y: field(y), start, times, method="dopri5", rtol=1e-5)

    def within():
        with checkpointed(slots=4):
            return solve()

    return lambda: gradient(solve), lambda: gradient(within)


def warp():
    """A kernel of warp-lang on the CPU, with its own tape for each step."""
    import warp as wp

    wp.config.quiet = True
    wp.init()

    @wp.kernel
    def diffuse(u: wp.array(dtype=wp.float64), out: wp.array(dtype=wp.float64)):
        i = wp.tid()
        n = u.shape[0]
        out[i] = (
            u[i]
            + wp.float64(0.1) * (u[(i + n - 1) % n] - wp.float64(2.0) * u[i] + u[(i + 1) % n])
            + wp.float64(0.1) * wp.sin(u[i])
        )

    def step(u, i):
        before = wp.array(u, dtype=wp.float64, device="cpu")
        after = wp.zeros_like(before)
        wp.launch(diffuse, dim=len(u), inputs=[before, after], device="cpu")
        return after.numpy().copy()

    def back(u, a, i):
        before = wp.array(u, dtype=wp.float64, device="cpu", requires_grad=True)
        after = wp.zeros_like(before, requires_grad=True)
        with wp.Tape() as tape:
            wp.launch(diffuse, dim=len(u), inputs=[before, after], device="cpu")
        tape.backward(grads={after: wp.array(a, dtype=wp.float64, device="cpu")})
        return before.grad.numpy().copy()

    return own_adjoint(step, back, np.sin(np.arange(500.0)), 200, 8)


def devito():
    """An operator of Devito, which computes into buffers of its own."""
    from devito import Eq, Grid, Operator, TimeFunction, configuration

    configuration["log-level"] = "ERROR"
    u = TimeFunction(name="u", grid=Grid(shape=(41, 41), extent=(1.0, 1.0)), time_order=1, space_order=2)
    operator = Operator([Eq(u.forward, u + 0.00005 * u.laplace)])

    def step(state, i):
        u.data[0] = state
        operator.apply(time_m=0, time_M=0, dt=1.0)
        return np.array(u.data[1])

    state = np.zeros((41, 41), np.float32)
    state[20, 20] = 1
    # The operator is symmetric but at the edge, where nothing arrives.
    return own_adjoint(step, lambda s, a, i: step(a, i), state, 200, 8)


def xarray():
    """Heat in a Dataset, which is the state."""
    import xarray as xr

    start = xr.Dataset({"heat": ("x", np.sin(np.arange(500.0)))}, coords={"x": np.arange(500.0)})

    def step(state, i):
        u = state.heat
        return state.assign(heat=u + 0.2 * (u.roll(x=1) - 2 * u + u.roll(x=-1)))

    def run(schedule):
        found = pb.adjoint(step, lambda s, a, i: step(a, i), start, 200, start * 0 + 1, schedule=schedule, verify="all")
        return [found.state.heat.values, found.adjoint.heat.values]

    return lambda: run(pb.StoreAll(200)), lambda: run(pb.Revolve(200, 8))


CLIENTS = {
    "deepwave": deepwave, "torchdiffeq": torchdiffeq, "warp-lang": warp, "devito": devito, "xarray": xarray
}  # fmt: skip


def row(name):
    """One line of the table, and whether all is well."""
    client = CLIENTS[name]
    what = client.__doc__.strip().rstrip(".")
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"| {name} | not installed here | {what} | | | |", True
    plain, ours = client()
    plain()  # what is set up once is not timed
    begun = time.perf_counter()
    want = plain()
    middle = time.perf_counter()
    found = ours()
    ended = time.perf_counter()
    same = all(one.tobytes() == two.tobytes() for one, two in zip(want, found, strict=True))
    times = f"{middle - begun:.2f} s | {ended - middle:.2f} s"
    return f"| {name} | {version} | {what} | {'yes' if same else 'NO'} | {times} |", same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CLIENTS, action="append")
    parser.add_argument("--save")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row(name) for name in options.only or CLIENTS]
    lines = [
        f"# Simulations in packages of others, {date.today()}",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, shared with other work. `python "
        "benchmarks/simulations.py`: values and gradients within a budget of 4 or 8 states, against keeping all.",
        "",
        "| package | version | program | same bits | keeping everything | within the budget |",
        "|---|---|---|---|---|---|",
        *[line for line, _ in rows],
    ]
    print("\n".join(lines))
    if options.save:
        Path(options.save).write_text("\n".join(lines) + "\n")
    return 0 if all(well for _, well in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
