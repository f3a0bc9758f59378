"""Loops of other people's libraries under ``checkpoint_loops``: memory, time, bits, budgets.

    python benchmarks/jax_clients.py measure [CLIENT …]     temp and time against plain, by slots
    python benchmarks/jax_clients.py budgets [CLIENT …]     do budgets hold under five derivatives, and planning time
    python benchmarks/jax_clients.py bits [CLIENT …]        are the gradients of all numbers of slots the same bits

Each client is a function of its library as its own examples write it, differentiated once; nothing of it is changed.
Times are the least of seven interleaved calls. A client whose library is missing is named and left out.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import pebbling as pb
import pebbling.jax as pj

Program = tuple[Callable[..., Any], Any]
SLOTS = (4, 8, 16, 32, 64)
ROUNDS = 7


def jaxley() -> Program:
    """A branched neuron with Hodgkin–Huxley channels, 400 steps, with respect to a conductance."""
    import jaxley as jx
    from jaxley.channels import HH

    cell = jx.Cell(jx.Branch(jx.Compartment(), 2), parents=[-1, 0, 0])
    cell.insert(HH())
    cell[0, 0].record()
    cell[0, 0].stimulate(jx.step_current(1.0, 1.0, 0.1, 0.025, 10.0))
    cell.make_trainable("HH_gNa")
    return lambda p: jnp.mean(jx.integrate(cell, params=p) ** 2), cell.get_parameters()


def brax() -> Program:
    """An inverted pendulum of brax (generalized), 60 steps under a linear policy."""
    from brax import envs

    env = envs.get_environment("inverted_pendulum", backend="generalized")
    start = jax.jit(env.reset)(jax.random.PRNGKey(0))

    def loss(policy: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = env.step(state, jnp.tanh(policy @ state.obs))
            return state, jnp.sum(state.obs**2)

        return jnp.sum(lax.scan(step, start, None, 60)[1])

    return loss, 0.1 * jnp.ones((env.action_size, env.observation_size))


def jax_md() -> Program:
    """64 soft spheres in a box, 500 steps of Nosé–Hoover, with respect to their diameter."""
    from jax_md import energy, simulate, space

    displacement, shift = space.periodic(8.0)
    pairs = energy.soft_sphere_pair(displacement)
    places = jax.random.uniform(jax.random.PRNGKey(0), (64, 2)) * 8.0

    def loss(sigma: Any) -> Any:
        force = functools.partial(pairs, sigma=sigma)
        init, apply = simulate.nvt_nose_hoover(force, shift, 5e-3, 0.1)
        state = init(jax.random.PRNGKey(1), places, mass=1.0)
        return force(lax.fori_loop(0, 500, lambda i, s: apply(s), state).position)

    return loss, jnp.float32(1.0)


def exponax() -> Program:
    """Kuramoto–Sivashinsky in one dimension, 100 points, 200 steps, with respect to the initial state."""
    import exponax as ex

    stepper = ex.stepper.KuramotoSivashinskyConservative(1, 30.0, 100, 0.1)
    start = jnp.sin(jnp.linspace(0.0, 2 * jnp.pi, 100))[None]
    return lambda u: jnp.sum(ex.repeat(stepper, 200)(u) ** 2), start


def lstm() -> Program:
    """An LSTM of haiku, 128 units, 256 steps of batch 16."""
    import haiku as hk

    def run(xs: Any) -> Any:
        core = hk.LSTM(128)
        return jnp.mean(hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0] ** 2)

    net = hk.without_apply_rng(hk.transform(run))
    xs = jax.random.normal(jax.random.PRNGKey(0), (256, 16, 32))
    return lambda params: net.apply(params, xs), net.init(jax.random.PRNGKey(1), xs)


def flax_lstm() -> Program:
    """The same in flax, as ``nn.RNN``."""
    from flax import linen as nn

    net = nn.RNN(nn.OptimizedLSTMCell(128), time_major=True)
    xs = jax.random.normal(jax.random.PRNGKey(0), (256, 16, 32))
    return lambda params: jnp.mean(net.apply(params, xs) ** 2), net.init(jax.random.PRNGKey(1), xs)


def selective_scan() -> Program:
    """The recurrence of a selective state space, 512 steps of 256 channels with 16 states."""
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    u, rate = (jax.nn.softplus(jax.random.normal(k, (512, 256))) for k in keys[:2])
    into, out = (jax.random.normal(k, (512, 16)) for k in keys[2:])

    def loss(decay: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            u, rate, into, out = row
            h = jnp.exp(rate[:, None] * decay) * h + (rate * u)[:, None] * into
            return h, h @ out

        return jnp.mean(lax.scan(step, jnp.zeros((256, 16)), (u, rate, into, out))[1] ** 2)

    return loss, -jnp.exp(jnp.linspace(-1.0, 1.0, 256 * 16).reshape(256, 16))


def numpyro() -> Program:
    """400 leapfrog steps of numpyro's velocity Verlet, with respect to the start."""
    from numpyro.infer.hmc_util import velocity_verlet

    scale = jnp.linspace(0.5, 2.0, 512)
    potential = lambda z: 0.5 * jnp.sum(z**2 / scale) + jnp.sum(jnp.cos(z))  # noqa: E731
    init, update = velocity_verlet(potential, lambda inverse_mass, r: 0.5 * jnp.sum(inverse_mass * r**2))

    def loss(z: Any) -> Any:
        state = lax.fori_loop(0, 400, lambda i, s: update(0.01, jnp.ones(512), s), init(z, jnp.ones(512)))
        return jnp.sum(state.z**2)

    return loss, jnp.linspace(-1.0, 1.0, 512)


def optax() -> Program:
    """256 steps of Adam on a regression, with respect to the logarithm of its rate."""
    import optax as ox

    key = jax.random.PRNGKey(0)
    a, b, w = jax.random.normal(key, (64, 128)), jax.random.normal(key, (64, 16)), jnp.zeros((128, 16))

    def loss(rate: Any) -> Any:
        adam = ox.adam(jnp.exp(rate))
        fit = lambda w: jnp.mean((jnp.tanh(a @ w) - b) ** 2)  # noqa: E731

        def step(c: Any, _: Any) -> Any:
            w, state = c
            change, state = adam.update(jax.grad(fit)(w), state)
            return (ox.apply_updates(w, change), state), None

        return fit(lax.scan(step, (w, adam.init(w)), None, 256)[0][0])

    return loss, jnp.float32(-5.0)


def diffrax() -> Program:
    """1000 Euler steps of a neural ODE by diffrax, as ``DirectAdjoint`` writes them."""
    import diffrax as dx

    w = jax.random.normal(jax.random.PRNGKey(0), (16, 16)) / 4
    term = dx.ODETerm(lambda t, y, w: jnp.tanh(w @ y))

    def loss(w: Any) -> Any:
        run = dx.diffeqsolve(
            term, dx.Euler(), 0.0, 1.0, 1e-3, jnp.ones(16), w, max_steps=1000, adjoint=dx.DirectAdjoint()
        )
        return jnp.sum(run.ys**2)

    return loss, w


CLIENTS = {
    f.__name__: f for f in (jaxley, brax, jax_md, exponax, lstm, flax_lstm, selective_scan, numpyro, optax, diffrax)
}


def compiled(f: Callable[..., Any], argument: Any) -> tuple[Any, int, float]:
    begun = time.perf_counter()
    program = jax.jit(f).lower(argument).compile()
    return program, program.memory_analysis().temp_size_in_bytes, time.perf_counter() - begun


def least_times(programs: dict[str, Any], argument: Any) -> dict[str, float]:
    """Interleaved, so that what else the machine does meets all of them."""
    found = dict.fromkeys(programs, float("inf"))
    for _ in range(ROUNDS):
        for name, program in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(program(argument))
            found[name] = min(found[name], time.perf_counter() - begun)
    return found


def measure(name: str, program: Program) -> str:
    f, argument = program
    made = {"plain": compiled(jax.grad(f), argument)}
    for slots in SLOTS:
        made[str(slots)] = compiled(jax.grad(pj.checkpoint_loops(f, slots=slots)), argument)
    made["default"] = compiled(jax.grad(pj.checkpoint_loops(f)), argument)
    times = least_times({key: program for key, (program, _, _) in made.items()}, argument)
    plain = times["plain"]
    best = min(times[str(s)] for s in SLOTS)
    cells = [name, f"{made['plain'][1] / 1e6:.2f}", f"{made['8'][1] / 1e6:.3f}", f"{made['default'][1] / 1e6:.3f}"]
    cells += [f"{1e3 * plain:.1f}", *(f"{times[str(s)] / plain:.2f}" for s in SLOTS), f"{times['default'] / plain:.2f}"]
    cells += [f"{times['default'] / best:.2f}", f"{times['default'] / times['8']:.2f}"]
    cells += [f"{made['plain'][2]:.1f}", f"{made['8'][2]:.1f}"]
    return "| " + " | ".join(cells) + " |"


MEASURED = (
    "| client | plain, MB | 8 slots, MB | default, MB | plain, ms | × at 4 | 8 | 16 | 32 | 64 | default "
    "| default / best | default / 8 | compile plain, s | compile 8, s |\n|" + "---|" * 15
)

MODES: dict[str, Callable[[Any], Any]] = {
    "grad": jax.grad,
    "value_and_grad": jax.value_and_grad,
    "vmap": lambda f: lambda x: jax.vmap(jax.grad(f))(jax.tree.map(lambda v: jnp.stack([v] * 4), x)),
    "hvp": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,))[1],
    "twice": lambda f: jax.grad(lambda x: f(x) + f(jax.tree.map(lambda v: 0.9 * v, x))),
}


def budgets(name: str, program: Program) -> str:
    """For each derivative: the smallest budget's share of plain, whether it and 1.5 × of it hold, planning time."""
    f, argument = program
    cells = [name]
    for mode in MODES.values():
        make = lambda memory, mode=mode: pj.jit(mode(pj.checkpoint_loops(f)), memory=memory)  # noqa: E731
        try:
            make(100).lower(argument)
            cells.append("all fits")
            continue
        except pb.BudgetError as error:
            least = int(error.minimum or 0)
        except Exception as error:  # a derivative that the client itself does not have
            cells.append(type(error).__name__)
            continue
        told = []
        for budget in (least, 3 * least // 2):
            begun = time.perf_counter()
            lowered = make(budget).lower(argument)
            planning = time.perf_counter() - begun
            begun = time.perf_counter()
            taken = lowered.compile().memory_analysis().temp_size_in_bytes
            compiling = time.perf_counter() - begun
            told.append(f"{'kept' if taken <= budget else 'BROKEN'} {taken / budget:.2f}")
        cells.append(f"{least / 1e3:.0f} kB: {', '.join(told)}; {planning:.1f} s, {compiling:.1f} s")
    return "| " + " | ".join(cells) + " |"


KEPT = (
    "Smallest budget, used of it and of 1.5 times it, planning at 1.5 times, one compilation.\n\n"
    f"| client | {' | '.join(MODES)} |\n|" + "---|" * (len(MODES) + 1)
)


def bits(name: str, program: Program) -> str:
    f, argument = program
    found = {s: jax.jit(jax.grad(pj.checkpoint_loops(f, slots=s)))(argument) for s in (3, 8, 20)}
    plain = jax.jit(jax.grad(f))(argument)

    def apart(one: Any, two: Any) -> float:
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two))
        return max(float(jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(a)) + 1e-30)) for a, b in pairs)

    return (
        f"| {name} | {'the same' if apart(found[3], found[8]) == apart(found[3], found[20]) == 0 else 'DIFFERENT'} "
        f"| {apart(plain, found[8]):.1e} |"
    )


SAME = "| client | 3, 8 and 20 slots | 8 slots against plain |\n|---|---|---|"


def main() -> None:
    what, *names = sys.argv[1:]
    run, header = {"measure": (measure, MEASURED), "budgets": (budgets, KEPT), "bits": (bits, SAME)}[what]
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}\n\n{header}", flush=True)
    for name in names or CLIENTS:
        try:
            program = CLIENTS[name]()
        except ModuleNotFoundError as error:
            print(f"| {name} | left out: {error} |", flush=True)
            continue
        print(run(name, program), flush=True)


if __name__ == "__main__":
    main()
