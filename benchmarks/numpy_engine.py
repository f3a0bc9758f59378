"""Speed of the NumPy engine beside HIPS autograd: µs an operation, for a loop of small operations.

Run: python benchmarks/numpy_engine.py [repeats]
"""

import gc
import sys
import time

import autograd
import autograd.numpy as anp
import numpy as np

from pebbling.engine import numpy as engine

ITERATIONS, OPERATIONS = 1000, 3


def loop(module):
    def f(s, a, b):
        for _ in range(ITERATIONS):
            s = module.tanh(s * a + b)
        return module.sum(s)

    return f


def best(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times) * 1e6 / (ITERATIONS * OPERATIONS)


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
    return {
        "NumPy, no derivative": best(lambda: plain(*args), repeats),
        "pebbling, reverse (s, a, b)": best(lambda: ours(*args), repeats),
        "autograd, reverse (s, a, b)": best(lambda: theirs(*args), repeats),
        "pebbling, forward (s)": best(
            lambda: engine.step_jvp(lambda x: [plain(*x)], args, (tangents[0], None, None)), repeats
        ),
        "pebbling, forward (s, a, b)": best(lambda: engine.jvp(plain, args, tangents), repeats),
        "autograd, forward (s)": best(lambda: their_push(tangents[0]), repeats),
    }


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    gc.collect()
    print("s = tanh(s * a + b), 1000 iterations, float64; µs an operation (CPU time, minimum)")
    sizes = (1, 100, 10_000)
    columns = [table(size, repeats if size <= 100 else max(2, repeats // 3)) for size in sizes]
    print(f"{'':30}" + "".join(f"{size:>10}" for size in sizes))
    for name in columns[0]:
        print(f"{name:30}" + "".join(f"{column[name]:10.2f}" for column in columns))
    for mine, other in (("reverse (s, a, b)",) * 2, ("forward (s)",) * 2):
        ratios = [column[f"autograd, {other}"] / column[f"pebbling, {mine}"] for column in columns]
        print(f"{'faster than autograd, ' + mine.split()[0]:30}" + "".join(f"{ratio:9.1f}x" for ratio in ratios))


if __name__ == "__main__":
    main()
