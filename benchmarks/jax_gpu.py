"""Checkpointed JAX loops on a GPU; prints one markdown table a section.

    python benchmarks/jax_gpu.py [--quick]

``ideal`` is (t(n, c) + 1) · F + n · V, as in ``jax_loops.py``, measured in the same run and under the
same compiler options. Every line stands on its own: one that fails prints its error and the run goes
on. The last sections test what needs a GPU: gradients against plain ``scan``, and snapshots in pinned
host memory with their bandwidth and the device's temporary memory.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pebbling.jax as pj
from pebbling.chain import binomial

try:
    import equinox.internal as eqxi
except ImportError:
    eqxi = None


def cheap(p, x):
    return jnp.tanh(p * x + 0.1)


def heavy(p, x):
    return jnp.tanh(x @ p)


def make(step, size):
    if step is cheap:
        return jnp.ones(size // 4), jnp.float32(0.9)
    side = max(128, int((size / 2) ** 0.5))
    return jnp.ones((side, side), jnp.bfloat16), (jnp.eye(side) * 0.9).astype(jnp.bfloat16)


def best(program, *args, repeats=5):
    jax.block_until_ready(program(*args))
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        jax.block_until_ready(program(*args))
        times.append(time.perf_counter() - before)
    return min(times)


def compiled(f, args, options):
    return jax.jit(f, compiler_options=options).lower(*args).compile()


def units(step, x, p, options):
    """F and V: one step in a loop of a known length, and one reverse step from a state in a buffer."""
    repeats = 200
    forward = compiled(lambda x, p: lax.fori_loop(0, repeats, lambda i, c: step(p, c), x), (x, p), options)

    def reverse(x, p):
        buffers = jnp.stack([x * (1 + 0.01 * k) for k in range(4)])

        def body(i, ct):
            z = lax.dynamic_index_in_dim(buffers, i % 4, 0, keepdims=False)
            return jax.vjp(lambda y: step(p, y), z)[1](ct)[0]

        return lax.fori_loop(0, repeats, body, jnp.ones_like(x))

    backward = compiled(reverse, (x, p), options)
    return best(forward, x, p) / repeats, best(backward, x, p) / repeats


def loss(loop):
    return lambda x, p: jnp.sum(loop(x, p).astype(jnp.float32))


def programs(step, n, c):
    yield "ours", lambda x, p: pj.fori_loop(0, n, lambda i, y: step(p, y), x, slots=c)
    for slots, leaf in ((c, 20), (c // 2, c - c // 2 + 1)):  # the latter takes about the memory of c slots
        yield (
            f"ours, {slots} slots and leaves of {leaf}",
            lambda x, p, slots=slots, leaf=leaf: pj.scan(
                lambda y, _: (step(p, y), None), x, None, n, slots=slots, leaf=leaf
            )[0],
        )
    yield (
        "ours, online",
        lambda x, p: pj.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(p, s[1])), (0, x), slots=c)[1],
    )
    if eqxi is not None:
        yield (
            "equinox",
            lambda x, p: eqxi.while_loop(
                lambda s: s[0] < n, lambda s: (s[0] + 1, step(p, s[1])), (jnp.int32(0), x),
                max_steps=n, kind="checkpointed", checkpoints=c,
            )[1],
        )  # fmt: skip
    yield "plain scan", lambda x, p: lax.scan(lambda y, _: (step(p, y), None), x, None, n)[0]


PEERS = ("equinox", "ours, online")


def speed(grid):
    print("\n## Speed\n")
    print(
        "| step | state | n | c | options | program | ms | ideal ms | time / ideal | temp, states "
        "| compile s | wrong calls of 20 |"
    )
    print("|---" * 12 + "|")
    for step, size, n, c in grid:
        x, p = make(step, size)
        expected = jax.jit(jax.grad(loss(dict(programs(step, n, c))["plain scan"])))(x, p)
        for label, options in (("default", None), ("command buffers", pj.GPU_OPTIONS)):
            f, v = units(step, x, p, options)
            ideal = (binomial.advances(n, c) + 1) * f + n * v
            for name, loop in programs(step, n, c):
                if options is None and name in PEERS:
                    continue  # slower than under the options, and the ideal is not the point there
                head = f"| {step.__name__} | {x.nbytes / 1024:.0f} KiB | {n} | {c} | {label} | {name} "
                try:
                    started = time.perf_counter()
                    program = compiled(jax.grad(loss(loop)), (x, p), options)
                    spent = time.perf_counter() - started
                    taken = best(program, x, p)
                    temp = program.memory_analysis().temp_size_in_bytes / x.nbytes
                    print(
                        f"{head}| {taken * 1e3:.2f} | {ideal * 1e3:.2f} | {taken / ideal:.2f} | {temp:.1f} "
                        f"| {spent:.2f} | {wrong(program, x, p, expected) if options else ''} |",
                        flush=True,
                    )
                except Exception as error:
                    print(f"{head}| {type(error).__name__}: {str(error)[:200]} | | | | | |", flush=True)


def wrong(program, x, p, expected):
    """How many of 20 calls under command buffers give another gradient than plain scan: a race shows in some only."""
    with_tolerance = {"rtol": 2e-2 if x.dtype == jnp.bfloat16 else 1e-4, "atol": 1e-6}
    return sum(not bool(jnp.allclose(program(x, p), expected, **with_tolerance)) for _ in range(20))


def correctness():
    print("\n## Gradients against plain scan\n\n| mode | largest relative difference |\n|---|---|")
    x, w = jnp.linspace(-0.5, 0.5, 32), jnp.array(np.random.default_rng(0).normal(size=(32, 32)) * 0.2, jnp.float32)

    def run(scan):
        def f(x, w):
            last, ys = scan(lambda c, t: (jnp.tanh(w @ c + t), jnp.sum(c)), x, jnp.linspace(0, 1, 57))
            return jnp.sum(last**2) + jnp.sum(ys**2)

        return f

    modes = {
        "grad": lambda f: jax.grad(f, (0, 1)),
        "jvp": lambda f: lambda *a: jax.jvp(f, a, a),
        "forward over reverse": lambda f: lambda *a: jax.jvp(jax.grad(f, (0, 1)), a, a),
        "reverse over forward": lambda f: jax.grad(lambda *a: jax.jvp(f, a, a)[1], (0, 1)),
        "reverse over reverse": lambda f: jax.grad(lambda x, w: jnp.sum(jax.grad(f)(x, w) ** 2), (0, 1)),
        "hessian": jax.hessian,
        "vmap of grad": lambda f: lambda x, w: jax.vmap(jax.grad(f), (0, None))(jnp.stack([x, 2 * x]), w),
        "inside jax.checkpoint": lambda f: jax.grad(jax.checkpoint(f), (0, 1)),
    }
    for name, mode in modes.items():
        try:
            with jax.default_matmul_precision("highest"):
                mine = jax.jit(mode(run(lambda *a: pj.scan(*a, slots=5))))(x, w)
                plain = jax.jit(mode(run(lax.scan)))(x, w)
            gap = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(b)) + 1e-30)), mine, plain)
            print(f"| {name} | {max(jax.tree.leaves(gap)):.2e} |", flush=True)
        except Exception as error:
            print(f"| {name} | {type(error).__name__}: {str(error)[:300]} |", flush=True)


def offload(size, steps, segment, slots):
    print("\n## Snapshots in pinned host memory\n")
    print("| state | steps | segment | slots | ms | moved GB | GB/s of the run | device temp, states | host temp |")
    print("|---" * 9 + "|")
    x = jnp.ones(size // 4)
    run = lambda x: jnp.sum(  # noqa: E731
        pj.offload_loop(0, steps, lambda i, y: jnp.tanh(0.9 * y + 0.1), x, segment=segment, slots=slots)
    )
    try:
        program = jax.jit(jax.grad(run)).lower(x).compile()
        found = program.memory_analysis()
        taken = best(program, x, repeats=3)
        moved = 2 * (steps // segment) * x.nbytes / 1e9
        host = getattr(found, "host_temp_size_in_bytes", 0) / x.nbytes
        print(
            f"| {size >> 20} MiB | {steps} | {segment} | {slots} | {taken * 1e3:.1f} | {moved:.2f} "
            f"| {moved / taken:.1f} | {found.temp_size_in_bytes / x.nbytes:.1f} | {host:.1f} |",
            flush=True,
        )
    except Exception as error:
        print(f"| {size >> 20} MiB | {type(error).__name__}: {str(error)[:300]} | | | | | | | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"# Checkpointed JAX loops on {jax.devices()[0].device_kind}\n\njax {jax.__version__}")
    correctness()
    for size in (1 << 24,) if quick else (1 << 24, 1 << 26):
        offload(size, 400, 20, 4)
    grid = [(cheap, 1 << 10, 1000, 10), (cheap, 1 << 24, 1000, 32), (cheap, 1 << 24, 1000, 10)]
    if not quick:
        grid += [(cheap, 1 << 10, 1000, 32), (heavy, 1 << 23, 200, 10)]
    speed(grid)


if __name__ == "__main__":
    main()
