"""Checkpointed JAX loops against what else there is, on one machine in one run.

    python benchmarks/jax_loops.py [--quick | --compile] [--workers N] [--write FILE]

``ideal`` is (t(n, c) + 1) · F + n · V: F the time of one step inside a ``fori_loop``, V that of one
reverse step (which evaluates the step again), t(n, c) the proven minimum of advances; no copies and
no control are in it. Times are CPU times, the least of three interleaved batches, less that of calling
a program that does nothing, with one thread in XLA; with ``--workers`` so many lines are measured at a
time, each on a core of its own. ``temp`` is XLA's own figure, in states. ``--compile`` measures how
long XLA takes to compile each loop instead, by the clock, the least of eight.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
from jax import lax

import pebbling.jax as pj
from pebbling.chain import binomial

try:
    import equinox.internal as eqxi
except ImportError:
    eqxi = None


def cheap(parameters, x):
    return jnp.tanh(parameters[0] * x + 0.1)


def heavy(parameters, x):
    return jnp.tanh(x @ parameters[0])


def make(step, size):
    if step is cheap:
        return jnp.ones(size // 4), (jnp.float32(0.9),)
    return jnp.ones((max(1, size // 1024), 256)), (jnp.eye(256) * 0.9,)


def loss(loop):
    return lambda x, parameters: jnp.sum(loop(x, parameters))


def plain(step, n):
    return lambda x, p: lax.scan(lambda c, _: (step(p, c), None), x, None, length=n)[0]


def remat(step, n):
    body = jax.checkpoint(lambda p, c: step(p, c), prevent_cse=False)
    return lambda x, p: lax.scan(lambda c, _: (body(p, c), None), x, None, length=n)[0]


def nested(step, n):
    outer = max(1, round(n**0.5))
    while n % outer:
        outer -= 1

    def segment(p, c):
        return lax.scan(lambda c, _: (step(p, c), None), c, None, length=n // outer)[0]

    body = jax.checkpoint(segment, prevent_cse=False)
    return lambda x, p: lax.scan(lambda c, _: (body(p, c), None), x, None, length=outer)[0]


def ours(step, n, c):
    return lambda x, p: pj.fori_loop(0, n, lambda i, y: step(p, y), x, slots=c)


def traced(step, n, c):
    def run(x, p):
        count = lax.optimization_barrier(jnp.int32(n))
        return pj.fori_loop(0, count, lambda i, y: step(p, y), x, slots=c)

    return run


def online(step, n, c):
    def run(x, p):
        limit = lax.optimization_barrier(jnp.int32(n))
        return pj.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, step(p, s[1])), (0, x), slots=c)[1]

    return run


def equinox_loop(step, n, c):
    def run(x, p):
        return eqxi.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, step(p, s[1])), (jnp.int32(0), x),
            max_steps=n, kind="checkpointed", checkpoints=c,
        )[1]  # fmt: skip

    return run


def compiled(loop, x, p, wanted):
    started = time.process_time()
    made = jax.jit(jax.grad(loss(loop), wanted)).lower(x, p).compile()
    return made, time.process_time() - started


def least(functions, arguments, seconds):
    """The least CPU time of a call of each function: batches of calls, interleaved, each ``seconds`` long."""
    calls, best = [], [float("inf")] * len(functions)
    for f in functions:
        jax.block_until_ready(f(*arguments))
        before = time.perf_counter()
        jax.block_until_ready(f(*arguments))
        calls.append(max(1, min(5000, round(seconds / (time.perf_counter() - before)))))
    for _ in range(3):
        for k, f in enumerate(functions):
            before = time.process_time()
            for _ in range(calls[k]):
                jax.block_until_ready(f(*arguments))
            best[k] = min(best[k], (time.process_time() - before) / calls[k])
    return best


def unit_programs(step, x, p, wanted):
    """Programs that take many times F and V: a step in a loop, and a reverse step from states at hand."""
    pilot = jax.jit(lambda x, p: lax.fori_loop(0, 8, lambda i, c: step(p, c), x)).lower(x, p).compile()
    (once,) = least([pilot], (x, p), 0.02)
    repeats = int(min(20000, max(10, 0.004 / max(once / 8, 1e-8))))

    forward = jax.jit(lambda x, p: lax.fori_loop(0, repeats, lambda i, c: step(p, c), x)).lower(x, p).compile()

    def reverse(x, p):
        slots = 4
        buffers = jnp.stack([x * (1 + 0.01 * k) for k in range(slots)])

        def body(i, carried):
            ct, acc, buffers = carried
            z = lax.dynamic_index_in_dim(buffers, i % slots, 0, keepdims=False)
            if wanted == 0:
                (g,) = jax.vjp(lambda y: step(p, y), z)[1](ct)
                return g, acc, buffers
            gp, g = jax.vjp(step, p, z)[1](ct)
            return g, jax.tree.map(jnp.add, acc, gp), buffers

        acc = jax.tree.map(jnp.zeros_like, p)
        return lax.fori_loop(0, repeats, body, (jnp.ones_like(x), acc, buffers))[:2]

    backward = jax.jit(reverse).lower(x, p).compile()
    return repeats, forward, backward


def case(step, size, n, c, seconds):
    x, p = make(step, size)
    wanted = (0, 1) if step is heavy else 0
    repeats, forward, backward = unit_programs(step, x, p, wanted)
    candidates = {"ours": ours(step, n, c), "traced": traced(step, n, c), "online": online(step, n, c)}
    if eqxi is not None:
        candidates["equinox"] = equinox_loop(step, n, c)
    if 3 * n * size < 1.5e9:
        candidates["scan"] = plain(step, n)
    if n * size < 1.5e9:
        candidates["remat"] = remat(step, n)
    candidates["sqrt"] = nested(step, n)
    made = {name: compiled(loop, x, p, wanted) for name, loop in candidates.items()}
    nothing = jax.jit(lambda x, p: p[0]).lower(x, p).compile()
    programs = [nothing, forward, backward, *(program for program, _ in made.values())]
    call, *rest = least(programs, (x, p), seconds)
    f, v, *rest = (t - call for t in rest)
    f, v, times = f / repeats, v / repeats, dict(zip(made, rest))
    ideal = (binomial.advances(n, c) + 1) * f + n * v
    state = x.nbytes
    temp = {name: program.memory_analysis().temp_size_in_bytes / state for name, (program, _) in made.items()}
    return {
        "F": f,
        "V": v,
        "ideal": ideal,
        "times": times,
        "temp": temp,
        "compile": {k: s for k, (_, s) in made.items()},
    }


def row(step, size, n, c, found):
    ideal, times, temp, spent = found["ideal"], found["times"], found["temp"], found["compile"]

    def ratio(name):
        return f"{times[name] / ideal:.2f}" if name in times else "-"

    def against(name):
        return f"{times['equinox'] / times[name]:.1f}x" if "equinox" in times else "-"

    def show(values, form):
        return "/".join(
            format(values[k], form) if k in values else "-" for k in ("ours", "online", "equinox", "scan", "sqrt")
        )

    return " | ".join(
        [
            "", step.__name__, f"{size // 1024} KiB", str(n), str(c),
            f"{found['F'] * 1e6:.2f}", f"{found['V'] * 1e6:.2f}", f"{ideal * 1e3:.3g}",
            *(ratio(k) for k in ("ours", "traced", "online", "equinox", "scan", "remat", "sqrt")),
            against("ours"), against("online"), show(temp, ".0f"),
            "/".join(f"{spent[k]:.2f}" if k in spent else "-" for k in ("ours", "traced", "online", "equinox")), "",
        ]
    ).strip()  # fmt: skip


HEADER = (
    "| step | state | n | c | F us | V us | ideal ms | ours | ours, traced n | ours, online | equinox | scan "
    "| checkpointed scan | sqrt nested | equinox/ours | equinox/online | temp: ours/online/equinox/scan/sqrt "
    "| compile CPU s: ours/traced/online/equinox |\n" + "|---" * 18 + "|"
)

GRID = [
    *((cheap, 1 << 10, n, c) for n in (100, 1000, 10_000) for c in (5, 10, 32, 100)),
    *((cheap, 1 << 20, n, c) for n in (100, 1000) for c in (5, 10, 32, 100)),
    *((cheap, 1 << 24, 100, c) for c in (5, 10, 32)),
    *((heavy, 1 << 10, n, c) for n in (100, 1000, 10_000) for c in (5, 10, 32, 100)),
    *((heavy, 1 << 16, n, c) for n in (100, 1000) for c in (5, 10, 32, 100)),
    *((heavy, 1 << 20, n, c) for n, c in ((100, 5), (100, 10), (100, 32), (1000, 10))),
    *((heavy, 1 << 24, n, c) for n, c in ((20, 5),)),
]
QUICK = [
    *((cheap, 1 << 10, 1000, c) for c in (5, 10, 32, 100)),
    *((cheap, 1 << 10, 10_000, c) for c in (10, 32)),
    *((cheap, 1 << 20, 100, c) for c in (10, 32)),
    (cheap, 1 << 24, 100, 10),
    *((heavy, 1 << 16, 100, c) for c in (5, 10, 32)),
    (heavy, 1 << 16, 1000, 32),
    (heavy, 1 << 20, 100, 10),
]


COMPILE_HEADER = (
    "| n | c | known length (limit 0.6 s) | traced length | online (limit 0.9 s) | equinox |\n" + "|---" * 6 + "|"
)


def compile_lines(repeats=8):
    """Seconds by the clock from a traced program to a compiled one."""
    x, p = make(cheap, 1 << 10)
    for n in (100, 10_000):
        for c in (10, 32, 100):
            spent = []
            for loop in (ours, traced, online, *([equinox_loop] if eqxi else [])):
                best = float("inf")
                for _ in range(repeats):
                    jax.clear_caches()
                    lowered = jax.jit(jax.grad(loss(loop(cheap, n, c)))).lower(x, p)
                    started = time.perf_counter()
                    lowered.compile()
                    best = min(best, time.perf_counter() - started)
                spent.append(f"{best:.2f}")
            yield " | ".join(["", str(n), str(c), *spent, ""]).strip()


def take_core(cores):
    os.sched_setaffinity(0, {cores.get()})


def line(cell, seconds):
    return row(*cell, case(*cell, seconds))


def lines_of(cells, seconds, workers):
    """One line a cell, in order; with several workers each has a core of its own."""
    if workers == 1:
        yield from (line(cell, seconds) for cell in cells)
        return
    fresh = multiprocessing.get_context("spawn")
    cores = fresh.Queue()
    for core in sorted(os.sched_getaffinity(0))[:workers]:
        cores.put(core)
    with ProcessPoolExecutor(workers, fresh, take_core, (cores,)) as pool:
        yield from (future.result() for future in [pool.submit(line, cell, seconds) for cell in cells])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write")
    parser.add_argument("--seconds", type=float, default=0.15, help="length of a batch of calls of one program")
    options = parser.parse_args()
    header = COMPILE_HEADER if options.compile else HEADER
    cells = QUICK if options.quick else GRID
    lines = [header]
    print(header, flush=True)
    for made in compile_lines() if options.compile else lines_of(cells, options.seconds, options.workers):
        lines.append(made)
        print(made, flush=True)
    if options.write:
        with open(options.write, "w") as file:
            file.write(f"# {title(options)}\n\n" + "\n".join(lines) + "\n")


def title(options):
    where = f"jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    if options.compile:
        return f"Compiling checkpointed JAX loops\n\n{where} Seconds by the clock, the least of eight."
    return (
        f"Checkpointed JAX loops, CPU\n\n{where} One thread, {options.workers} lines at a time. Columns from `ours` to "
        "`sqrt nested` are time / ideal; compile times are CPU seconds, tracing included."
    )


if __name__ == "__main__":
    main()
