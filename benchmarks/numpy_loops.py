"""Checkpointed loops in NumPy beside HIPS autograd and beside storing everything: memory, time, replays.

Memory is the peak by tracemalloc above what was there before the call, after warm-up calls. Time is the
CPU time of the process, the minimum of several runs. Every figure with a limit is printed beside it.

    python benchmarks/numpy_loops.py [--repeats N] [--write FILE]
"""

import argparse
import platform
import time
import tracemalloc
from importlib.metadata import version
from pathlib import Path

import autograd
import autograd.numpy as anp
import numpy as np

import pebbling as pb
from pebbling.chain.binomial import advances
from pebbling.numpy import grad, hvp, loop

REPEATS = 7
lines, misses = [], []


def say(text=""):
    print(text, flush=True)
    lines.append(text)


def peak(function, *args):
    function(*args)
    tracemalloc.start()
    function(*args)
    function(*args)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    function(*args)
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found


def seconds(args, *functions, repeats=None):
    """The minimum of each, taken in turns so that a busy moment of the machine hits all of them."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function(*args)
    for _ in range(repeats or REPEATS):
        for i, function in enumerate(functions):
            begun = time.process_time()
            function(*args)
            best[i] = min(best[i], time.process_time() - begun)
    return best


def within(found, limit, text="{:.2f}", least=False):
    """The figure beside its limit."""
    good = found >= limit if least else found <= limit
    shown = f"{text.format(found)} ({'≥' if least else '≤'} {text.format(limit)}{'' if good else ', MISSED'})"
    if not good:
        misses.append(shown)
    return shown


def row(*cells):
    say("| " + " | ".join(str(cell) for cell in cells) + " |")


def table(*head):
    say()
    row(*head)
    row(*["---"] * len(head))


def kilobytes(amount):
    return f"{amount / 1000:,.1f} kB" if amount < 10**6 else f"{amount / 10**6:,.2f} MB"


def inputs(size, count=3):
    rng = np.random.default_rng(0)
    return [rng.normal(size=size) for _ in range(count)]


def autograd_of(n, module=anp):
    def f(s, a, b):
        for _ in range(n):
            s = module.tanh(s * a + b)
        return module.sum(s)

    return f


def ours(n, **options):
    return lambda s, a, b: np.sum(loop(lambda i, s, a, b: np.tanh(s * a + b), s, n, a, b, **options))


def against_autograd():
    say("\n## tanh(s * a + b), gradient with respect to s, a and b")
    table("steps × size", "slots", "autograd", "pebbling", "less", "autograd ms", "pebbling ms", "time ratio")
    cases = [
        (1000, 100, 8, 99.4, 0.6),
        (10_000, 100, 8, 99.9, None),
        (1000, 10_000, 8, 99.0, 1.4),
        (1000, 10_000, 16, None, 1.2),
    ]
    for n, size, slots, less, ratio in cases:
        args = inputs(size)
        theirs, mine = autograd.grad(autograd_of(n), (0, 1, 2)), grad(ours(n, slots=slots), (0, 1, 2))
        for one, other in zip(theirs(*args), mine(*args)):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-300)
        before, after = peak(theirs, *args), peak(mine, *args)
        slow, fast = seconds(args, theirs, mine, repeats=REPEATS if n * size < 10**6 else 4)
        percent = 100 * (1 - after / before)
        row(
            f"{n:,} × {size:,}",
            slots,
            kilobytes(before),
            kilobytes(after),
            f"{percent:.2f} %" if less is None else within(percent, less, "{:.2f} %", least=True),
            f"{slow * 1e3:.1f}",
            f"{fast * 1e3:.1f}",
            f"{fast / slow:.2f}" if ratio is None else within(fast / slow, ratio),
        )


def simple_steps():
    n, size = 1000, 1000
    say(f"\n## {n} steps × {size} float64, gradient with respect to the state")
    say(
        "\nautograd keeps no array for an addition, so its own peak for s + 0.1 is that of about a hundred states, and "
        "the result and its cotangent alone are 2 % of it."
    )
    table("step", "slots", "autograd", "pebbling", "less than all states", "less than autograd", "run again", "minimum")
    for name, body in (("s + 0.1", lambda m, s: s + 0.1), ("tanh(1.01 s + 0.1)", lambda m, s: m.tanh(1.01 * s + 0.1))):
        for slots in (4, 6, 8):
            simple_step(name, body, n, size, slots)


def simple_step(name, body, n, size, slots):
    calls = []

    def step(i, s):
        if calls:
            calls[0] += 1
        return body(np, s)

    def whole(s):
        for _ in range(n):
            s = body(anp, s)
        return anp.sum(s)

    (x,) = inputs(size, 1)
    theirs, mine = autograd.grad(whole), grad(lambda s: np.sum(loop(step, s, n, slots=slots)))
    states, before, after = 8 * n * size, peak(theirs, x), peak(mine, x)
    calls.append(0)
    mine(x)
    # The sweep runs every step once, and every step is taped once.
    again, optimum = calls[0] - 2 * n, advances(n, slots) + 1 - n
    assert again == optimum
    less = [100 * (1 - after / baseline) for baseline in (states, before)]
    limits = [99 if slots == 4 else None, 99 if slots == 4 and before > states else None]
    shown = [
        f"{found:.2f} %" if limit is None else within(found, limit, "{:.2f} %", least=True)
        for found, limit in zip(less, limits)
    ]
    row(name, slots, kilobytes(before), kilobytes(after), *shown, again, optimum)


def peak_in_states():
    say("\n## Peak in states, and time a step beside the operations")
    table("size", "slots", "peak in states", "limit: slots + 6 + tape", "within")
    for size in (1000, 10_000, 100_000):
        args = inputs(size)
        tape = peak(grad(autograd_of(1, np), (0, 1, 2)), *args)
        for slots in (1, 8, 16):
            mine = grad(ours(60, slots=slots), (0, 1, 2))
            found, limit = peak(mine, *args) / (8 * size), slots + 6 + tape / (8 * size)
            row(size, slots, f"{found:.1f}", f"{limit:.1f}", within(found, limit, "{:.1f}"))
    n, args = 1000, inputs(100)
    plain = autograd_of(n, np)
    taped = grad(plain, (0, 1, 2))
    table("slots", "steps run", "ms", "of it operations, ms", "µs besides, a step run")
    for slots in (8, 16, 44):
        mine = grad(ours(n, slots=slots), (0, 1, 2))
        total, tape_only, forward = seconds(args, mine, taped, plain, repeats=3 * REPEATS)
        replays = advances(n, slots) + 1
        operations = tape_only + forward * replays / n
        beside = (total - operations) * 1e6 / (n + replays)
        row(slots, n + replays, f"{total * 1e3:.1f}", f"{operations * 1e3:.1f}", within(beside, 5.0))


def heat(n):
    """Written into place, as one would without derivatives: the state is copied where a snapshot is kept."""
    (u,) = inputs((64, 64), 1)

    def step(i, u, k):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] += 0.1 * k * (around - 4.0 * u[1:-1, 1:-1])
        return u

    def plain(u, k):
        u = u.copy()
        for i in range(n):
            u = step(i, u, k)
        return np.sum(u**2)

    return "heat equation in place, 64²", plain, pb.checkpoint(slots=16)(plain), (u, np.full((62, 62), 0.9)), n


def burgers(n):
    u, v = inputs((48, 48), 2)

    def slopes(f):
        return (np.roll(f, -1, 0) - np.roll(f, 1, 0)) * 0.5, (np.roll(f, -1, 1) - np.roll(f, 1, 1)) * 0.5

    def spread(f):
        return np.roll(f, 1, 0) + np.roll(f, -1, 0) + np.roll(f, 1, 1) + np.roll(f, -1, 1) - 4.0 * f

    def body(i, state, nu):
        u, v = state
        (ux, uy), (vx, vy) = slopes(u), slopes(v)
        return u + 0.01 * (nu * spread(u) - u * ux - v * uy), v + 0.01 * (nu * spread(v) - u * vx - v * vy)

    return written_twice("Burgers, 2-D, 48²", body, lambda s: np.sum(s[0] ** 2 + s[1] ** 2), n, (u * 0.1, v * 0.1), 0.5)


def n_body(n):
    x, v, m = inputs((24, 3), 3)

    def force(x, m):
        d = x[None, :, :] - x[:, None, :]
        r = np.sum(d**2, axis=2) + 0.1
        return np.sum(d * (m[None, :, None] / (r * np.sqrt(r))[:, :, None]), axis=1)

    def body(i, state, m):
        x, v = state
        v = v + 0.005 * force(x, m)
        x = x + 0.01 * v
        return x, v + 0.005 * force(x, m)

    return written_twice("leapfrog, 24 bodies", body, lambda s: np.sum(s[0] ** 2), n, (x, v * 0.1), np.abs(m[:, 0]))


def rnn(n):
    hidden = 512
    h, bias = inputs(hidden, 2)
    w = np.random.default_rng(1).normal(size=(hidden, hidden)) / np.sqrt(hidden)
    inside = np.random.default_rng(2).normal(size=(n, hidden)) * 0.1

    def body(i, h, w, bias):
        return np.tanh(w @ h + bias + inside[i])

    return written_twice("RNN, hidden 512", body, lambda h: np.sum(h**2), n, h, w, bias)


def written_twice(name, body, measure, n, state, *args):
    """The loop as Python has it, and as a checkpointed one."""

    def plain(state, *args):
        for i in range(n):
            state = body(i, state, *args)
        return measure(state)

    def checkpointed(state, *args):
        return measure(loop(body, state, n, *args, slots=16))

    return name, plain, checkpointed, (state, *args), n


def applications():
    say("\n## Programs, 16 slots, beside storing everything with the same engine")
    say("\nThe gradient itself is part of both peaks; for the RNN, whose weights take 2.10 MB, it is most of ours.")
    table(
        "program",
        "steps",
        "everything",
        "16 slots",
        "less",
        "less besides the gradient",
        "steps run again",
        "ms everything",
        "ms",
        "ratio",
        "equal bits",
    )
    for program in (heat(500), burgers(300), n_body(300), rnn(1000)):
        application(*program)


def application(name, plain, checkpointed, args, n):
    argnums = tuple(range(len(args)))
    everything, mine = grad(plain, argnums), grad(checkpointed, argnums)
    found = mine(*args)
    equal = same(everything(*args), found)
    own = nbytes(found)
    before, after = peak(everything, *args), peak(mine, *args)
    slow, fast = seconds(args, everything, mine, repeats=3)
    row(
        name,
        n,
        kilobytes(before),
        kilobytes(after),
        f"{100 * (1 - after / before):.2f} %",
        f"{100 * (1 - (after - own) / (before - own)):.2f} %",
        advances(n, 16) + 1 - n,
        f"{slow * 1e3:.0f}",
        f"{fast * 1e3:.0f}",
        f"{fast / slow:.2f}",
        within(int(equal), 1, "{}", least=True),
    )


def hessian_products():
    say("\n## Hessian times a vector, forward over reverse, 1000 steps, 16 slots, with respect to s")
    table("size", "plain", "checkpointed", "beside the gradient's", "ms plain", "ms", "time ratio", "equal bits")
    for size in (100, 1000, 10_000):
        s, a, b, v = inputs(size, 4)
        plain, mine, gradient = hvp(autograd_of(1000, np)), hvp(ours(1000, slots=16)), grad(ours(1000, slots=16))
        equal = np.array_equal(plain(s, a, b, v), mine(s, a, b, v))
        before, after, first = peak(plain, s, a, b, v), peak(mine, s, a, b, v), peak(gradient, s, a, b)
        slow, fast = seconds((s, a, b, v), plain, mine, repeats=3 * REPEATS if size < 10_000 else REPEATS)
        row(
            f"{size:,}",
            kilobytes(before),
            kilobytes(after),
            within(after / first, 2.0),
            f"{slow * 1e3:.1f}",
            f"{fast * 1e3:.1f}",
            within(fast / slow, 1.6),
            within(int(equal), 1, "{}", least=True),
        )


def budgets():
    say("\n## memory=, 300 steps × 10,000 float64, gradient with respect to s, a and b")
    table("budget", "measured peak", "ms")
    args = inputs(10_000)
    for budget in (1_500_000, 3_000_000, 10_000_000, 20_000_000, 40_000_000):
        mine = grad(ours(300, memory=budget), (0, 1, 2))
        (best,) = seconds(args, mine, repeats=3)
        row(kilobytes(budget), within(peak(mine, *args) / 1e6, budget / 1e6, "{:.2f} MB"), f"{best * 1e3:.1f}")


def same(one, two):
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, two))
    return np.array_equal(one, two)


def nbytes(tree):
    return sum(map(nbytes, tree)) if isinstance(tree, tuple) else np.asarray(tree).nbytes


def main():
    global REPEATS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of which the fastest counts")
    parser.add_argument("--write", type=Path, help="write the tables as Markdown")
    arguments = parser.parse_args()
    REPEATS = arguments.repeats
    say("# Loops in NumPy\n")
    say(
        f"Python {platform.python_version()}, NumPy {np.__version__}, autograd {version('autograd')}, "
        f"{platform.machine()}, 2 cores in shared use. "
        "Peak memory by tracemalloc after warm-up calls; CPU time, minimum of several runs."
    )
    for part in (against_autograd, simple_steps, peak_in_states, applications, hessian_products, budgets):
        part()
    say(f"\nLimits missed: {len(misses)}" + "".join(f"\n- {miss}" for miss in misses))
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
