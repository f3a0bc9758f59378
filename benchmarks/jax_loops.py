"""Checkpointed JAX loops against what else there is, on one machine in one run.

    python benchmarks/jax_loops.py [--quick | --compile] [--workers N] [--write FILE]

``ideal`` is (t(n, c) + 1) · F + n · V: F the time of one step inside a ``fori_loop`` of known length,
V that of one reverse step, which evaluates the step again from a state that it reads from a buffer, and
adds up the cotangents of the parameters where the gradient asks for those; t(n, c) the proven minimum of
advances. F and V are differences between loops of two lengths, so the call is not in them; no copies, no
snapshots and no control other than that of a loop of known length are in ``ideal``.

Times are the least of many, those of all programs interleaved: of single calls by the clock where a call
takes under 2 ms, for no other program interrupts some of them; else of batches of calls by the CPU time of
the process. What a call of a program costs that does next to nothing is taken off, of one that XLA hands
to a thread as it does with these loops: programs of fewer than 1000 operations it runs on the spot. One
thread in XLA; with ``--workers`` so many lines are measured at a time, each on a core of its own. ``temp``
is XLA's own figure, in states. ``--compile`` measures how long XLA takes to compile each loop instead, by
the clock, the least of eight.
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


SHORT = 0.002


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


def took(f, arguments, clock, calls):
    before = clock()
    for _ in range(calls):
        jax.block_until_ready(f(*arguments))
    return (clock() - before) / calls


def least(functions, arguments, seconds):
    """The least time of a call of each function: ten rounds, in each of which each has a third of ``seconds``."""
    for f in functions:
        jax.block_until_ready(f(*arguments))
    first = [took(f, arguments, time.perf_counter, 1) for f in functions]
    calls = [max(1, min(500, round(seconds / 3 / t))) for t in first]
    best = [float("inf")] * len(functions)
    for _ in range(10 if max(first) < seconds else 3):
        for k, f in enumerate(functions):
            if first[k] < SHORT:
                found = min(took(f, arguments, time.perf_counter, 1) for _ in range(calls[k]))
            else:
                found = took(f, arguments, time.process_time, calls[k])
            best[k] = min(best[k], found)
    return best


def unit_programs(step, x, p, wanted):
    """How many steps more the second has of two loops of steps, and of two of reverse steps; and those four loops."""
    pilot = jax.jit(lambda x, p: lax.fori_loop(0, 8, lambda i, c: step(p, c), x)).lower(x, p).compile()
    (once,) = least([pilot], (x, p), 0.02)
    repeats = 2500 if once < 2e-5 else max(4, int(0.002 / once))  # most of so short a call is the call itself

    def forward(length):
        return lambda x, p: lax.fori_loop(0, length, lambda i, c: step(p, c), x)

    def reverse(length):
        def run(x, p):
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
            return lax.fori_loop(0, length, body, (jnp.ones_like(x), acc, buffers))[:2]

        return run

    runs = [kind(length) for kind in (forward, reverse) for length in (repeats, 4 * repeats)]
    return 3 * repeats, [jax.jit(run).lower(x, p).compile() for run in runs]


def next_to_nothing(x, p):
    y = x[(0,) * (x.ndim - 1)][:256]
    for _ in range(8):
        y = y * p[0].ravel()[0] + y
    return y


def case(step, size, n, c, seconds):
    x, p = make(step, size)
    wanted = (0, 1) if step is heavy else 0
    more, units = unit_programs(step, x, p, wanted)
    candidates = {"ours": ours(step, n, c), "traced": traced(step, n, c), "online": online(step, n, c)}
    if eqxi is not None:
        candidates["equinox"] = equinox_loop(step, n, c)
    if 3 * n * size < 1.5e9:
        candidates["scan"] = plain(step, n)
    if n * size < 1.5e9:
        candidates["remat"] = remat(step, n)
    candidates["sqrt"] = nested(step, n)
    made = {name: compiled(loop, x, p, wanted) for name, loop in candidates.items()}
    nothing = jax.jit(next_to_nothing).lower(x, p).compile()
    programs = [nothing, *units, *(program for program, _ in made.values())]
    call, f, f_longer, v, v_longer, *rest = least(programs, (x, p), seconds)
    f, v, times = (f_longer - f) / more, (v_longer - v) / more, dict(zip(made, (t - call for t in rest)))
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


def limit(step, size, c):
    """The most that ``ours`` may take, as a multiple of the ideal."""
    if step is cheap:
        return (1.3 if c >= 32 else 1.6) if size < 1 << 20 else None
    return 1.05 if size >= 1 << 16 else None


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
            ratio("ours"), str(limit(step, size, c) or "-"),
            *(ratio(k) for k in ("traced", "online", "equinox", "scan", "remat", "sqrt")),
            against("ours"), against("online"), show(temp, ".0f"),
            "/".join(f"{spent[k]:.2f}" if k in spent else "-" for k in ("ours", "traced", "online", "equinox")), "",
        ]
    ).strip()  # fmt: skip


HEADER = (
    "| step | state | n | c | F us | V us | ideal ms | ours | limit | ours, traced n | ours, online | equinox | scan "
    "| checkpointed scan | sqrt nested | equinox/ours | equinox/online | temp: ours/online/equinox/scan/sqrt "
    "| compile CPU s: ours/traced/online/equinox |\n" + "|---" * 19 + "|"
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
    *((cheap, 1 << 10, 100, c) for c in (5, 10, 32)),
    *((cheap, 1 << 10, 1000, c) for c in (5, 10, 32, 100)),
    *((cheap, 1 << 10, 10_000, c) for c in (5, 10, 32, 100)),
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
