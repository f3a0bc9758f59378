"""Speed of the NumPy engine beside HIPS autograd: µs an operation, for a loop of small operations.

python benchmarks/numpy_engine.py [--repeats N] [--write FILE]
"""

import argparse
import gc
import platform
import time
from importlib.metadata import version
from pathlib import Path

import autograd
import autograd.numpy as anp
import numpy as np

from pebbling.engine import numpy as engine

ITERATIONS, OPERATIONS = 1000, 3
LIMITS = {"pebbling, reverse (s, a, b)": 6.0, "pebbling, forward (s)": 2.5, "pebbling, forward (s, a, b)": 2.5}


def loop(module):
    def f(s, a, b):
        for _ in range(ITERATIONS):
            s = module.tanh(s * a + b)
        return module.sum(s)

    return f


def best(calls, repeats):
    """The minimum of each, taken in turns so that a busy moment of the machine hits all of them."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(1 + repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name] = min(times[name], time.process_time() - start)
    return {name: seconds * 1e6 / (ITERATIONS * OPERATIONS) for name, seconds in times.items()}


def table(size, repeats):
    rng = np.random.default_rng(0)
    args = rng.normal(size=size), rng.normal(size=size), rng.normal(size=size)
    tangents = tuple(np.ones(size) for _ in args)
    plain, taped = loop(np), loop(anp)
    ours = engine.grad(plain, (0, 1, 2))
    theirs = autograd.grad(taped, (0, 1, 2))
    their_push = autograd.make_jvp(taped, 0)(*args)
    for mine, other in zip(ours(*args), theirs(*args)):
        np.testing.assert_allclose(mine, other, rtol=1e-12)
    calls = {
        "NumPy, no derivative": lambda: plain(*args),
        "pebbling, reverse (s, a, b)": lambda: ours(*args),
        "autograd, reverse (s, a, b)": lambda: theirs(*args),
        "pebbling, forward (s)": lambda: engine.step_jvp(lambda x: [plain(*x)], args, (tangents[0], None, None)),
        "pebbling, forward (s, a, b)": lambda: engine.jvp(plain, args, tangents),
        "autograd, forward (s)": lambda: their_push(tangents[0]),
    }
    return best(calls, repeats)


def within(found, limit, least=False):
    """The figure beside its limit."""
    good = found >= limit if least else found <= limit
    return f"{found:.2f} ({'≥' if least else '≤'} {limit}{'' if good else ', MISSED'})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="runs of which the fastest counts")
    parser.add_argument("--write", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    repeats = arguments.repeats
    gc.collect()
    sizes = (1, 100, 10_000)
    columns = [table(size, repeats if size <= 100 else max(2, repeats // 3)) for size in sizes]
    lines = [
        "# Speed of the NumPy engine\n",
        f"s = tanh(s * a + b), 1000 iterations, float64; µs an operation (CPU time, minimum of {repeats}); "
        f"Python {platform.python_version()}, NumPy {np.__version__}, autograd {version('autograd')}, "
        f"{platform.machine()}, 2 cores in shared use. Limits are for 100 elements.\n",
        "| | " + " | ".join(f"{size:,} elements" for size in sizes) + " |",
        "| --- |" + " --- |" * len(sizes),
    ]
    for name in columns[0]:
        cells = [f"{column[name]:.2f}" for column in columns]
        if name in LIMITS:
            cells[1] = within(columns[1][name], LIMITS[name])
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for mine in ("reverse (s, a, b)", "forward (s)"):
        ratios = [column[f"autograd, {mine}"] / column[f"pebbling, {mine}"] for column in columns]
        cells = [f"{ratio:.2f}" for ratio in ratios]
        cells[1] = within(ratios[1], 2.5, least=True)
        lines.append(f"| times faster than autograd, {mine.split()[0]} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
