"""Do budgets of compiled programs hold, and how much of them is used?

    python benchmarks/jax_budgets.py > benchmarks/results/….md

Six programs (one loop, two, nested, work outside of loops, inputs and outputs, unknown length) under five derivatives;
for each the smallest budget, which an error names, and 1.3, 3 and 10 times that. XLA's own figure decides.
"""

import time

import jax
import jax.numpy as jnp
from jax import lax

import pebbling as pb
import pebbling.jax as pj

X, W = jnp.ones((256, 64)), jnp.eye(64) * 0.9


def step(w):
    return lambda i, y: jnp.tanh(y @ w)


def one(x, w):
    return jnp.sum(lax.fori_loop(0, 300, step(w), x))


def two(x, w):
    z = jnp.sin(lax.fori_loop(0, 200, step(w), x))
    return jnp.sum(lax.scan(lambda c, _: (jnp.sin(c @ w), None), z, None, 400)[0])


def nested(x, w):
    outer = lambda c, _: (lax.fori_loop(0, 20, step(w), c) + jnp.sin(c), None)  # noqa: E731
    return jnp.sum(lax.scan(outer, x, None, 30)[0])


def work_outside(x, w):
    for _ in range(10):
        x = jnp.sin(jnp.tile(x, (1, 4)) @ jnp.ones((256, 256)))[:, :64]
    return jnp.sum(jnp.exp(lax.fori_loop(0, 200, step(w), x)))


def inputs_and_outputs(x, w):
    xs = jnp.ones((1000, 64)) * w[0, 0]
    last, ys = lax.scan(lambda c, t: (jnp.tanh(c @ w + t), jnp.sum(c)), x, xs)
    return jnp.sum(last) + jnp.sum(ys**2)


def unknown_length(x, w):
    return jnp.sum(lax.while_loop(lambda c: c[0] < 300, lambda c: (c[0] + 1, step(w)(0, c[1])), (0, x))[1])


PROGRAMS = [one, two, nested, work_outside, inputs_and_outputs, unknown_length]
MODES = {
    "gradient": lambda f: jax.grad(f, (0, 1)),
    "value and gradient": lambda f: jax.value_and_grad(f, (0, 1)),
    "batch of 8": lambda f: lambda x, w: jax.vmap(jax.grad(f, (0, 1)), (0, None))(jnp.stack([x] * 8), w),
    "forward over reverse": lambda f: lambda x, w: jax.jvp(jax.grad(f, (0, 1)), (x, w), (x, w))[1],
    "reverse over reverse": lambda f: jax.grad(lambda x, w: jnp.vdot(jax.grad(f)(x, w), x), (0, 1)),
}


def main():
    print("| program | derivative | smallest, bytes | used at 1 × | 1.3 × | 3 × | 10 × | planning, s | compiling, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for f in PROGRAMS:
        for name, mode in MODES.items():
            make = lambda memory, f=f, mode=mode: pj.jit(mode(pj.checkpoint_loops(f)), memory=memory)  # noqa: E731
            try:
                make(1000).lower(X, W)
                raise SystemExit("1000 bytes were enough")
            except pb.BudgetError as error:
                least = int(error.minimum)
            used, planning, compiling = [], [], []
            for budget in (least, int(1.3 * least), 3 * least, 10 * least):
                begun = time.perf_counter()
                lowered = make(budget).lower(X, W)
                planned = time.perf_counter()
                taken = lowered.compile().memory_analysis().temp_size_in_bytes
                compiling.append(time.perf_counter() - planned)
                planning.append(planned - begun)
                used.append(f"{taken / budget:.3f}{' OVER' if taken > budget else ''}")
            print(
                f"| {f.__name__} | {name} | {least} | {' | '.join(used)} | {max(planning):.1f} | {max(compiling):.1f} |"
            )


main()
