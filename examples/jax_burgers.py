"""Find the initial state of a viscous Burgers flow from its final state, in the memory of a few states.

python examples/jax_burgers.py
"""

import jax
import jax.numpy as jnp

import pebbling.jax as pj

STEPS, CELLS, DT, DX, VISCOSITY = 2000, 256, 1e-3, 2 * jnp.pi / 256, 0.05


def step(u):
    left, right = jnp.roll(u, 1), jnp.roll(u, -1)
    return u - DT * u * (right - left) / (2 * DX) + VISCOSITY * DT * (right - 2 * u + left) / DX**2


def flow(u):
    return pj.fori_loop(0, STEPS, lambda i, v: step(v), u, slots=12)


def main():
    grid = jnp.arange(CELLS) * DX
    truth = jnp.sin(grid) + 0.5 * jnp.cos(2 * grid)
    final = jax.jit(flow)(truth)
    misfit = jax.jit(jax.value_and_grad(lambda u: jnp.mean((flow(u) - final) ** 2)))
    guess = jnp.sin(grid)
    first, _ = misfit(guess)
    for _ in range(100):
        _, gradient = misfit(guess)
        guess = guess - 0.1 * CELLS * gradient
    last, _ = misfit(guess)
    print(f"misfit {first:.2e} -> {last:.2e} over {STEPS} steps with 12 states kept")
    assert last < 0.1 * first


if __name__ == "__main__":
    main()
