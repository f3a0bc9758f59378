"""Run by ``test_sharding.py`` in a process of its own, with four CPU devices; prints one line for each check."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import pebbling.jax as pj

MESH = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
GRID = jnp.sin(jnp.linspace(0, 2 * jnp.pi, 64, endpoint=False)) + 0.5


def burgers(u, left, right, dt=0.01, dx=0.1, nu=0.02):
    """One explicit step of the viscous Burgers equation."""
    return u - dt * u * (right - left) / (2 * dx) + nu * dt * (right - 2 * u + left) / dx**2


def whole_step(u):
    return burgers(u, jnp.roll(u, 1), jnp.roll(u, -1))


def local_step(u):
    """The same step on one device's part of the grid, with its neighbours' edges."""
    forward = [(i, (i + 1) % 4) for i in range(4)]
    backward = [(i, (i - 1) % 4) for i in range(4)]
    left = lax.ppermute(u[-1:], "x", forward)
    right = lax.ppermute(u[:1], "x", backward)
    wide = jnp.concatenate([left, u, right])
    return burgers(u, wide[:-2], wide[2:])


def energy(loop):
    return lambda u: jnp.sum(loop(u) ** 2)


def unsharded(u):
    return lax.fori_loop(0, 40, lambda i, v: whole_step(v), u)


def report(name, good):
    print(f"{name}: {'ok' if good else 'FAILED'}", flush=True)


def close(a, b):
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6))


def automatic():
    expected = jax.grad(energy(unsharded))(GRID)
    placed = jax.device_put(GRID, NamedSharding(MESH, PartitionSpec("x")))
    for name, run in {
        "known length": lambda u: pj.fori_loop(0, 40, lambda i, v: whole_step(v), u, slots=5),
        "unknown length": lambda u: pj.while_loop(
            lambda c: c[0] < 40, lambda c: (c[0] + 1, whole_step(c[1])), (0, u), slots=5
        )[1],
    }.items():
        gradient = jax.jit(jax.grad(energy(run)))
        found = gradient(placed)
        report(f"sharded arrays, {name}", close(found, expected))
        text = gradient.lower(placed).compile().as_text()
        report(f"no state is gathered, {name}", "all-gather" not in text)
        report(f"the gradient stays sharded, {name}", found.sharding.spec == PartitionSpec("x"))


def manual():
    expected = jax.grad(energy(unsharded))(GRID)
    direction = jnp.cos(GRID)
    expected_second = jax.jvp(jax.grad(energy(unsharded)), (GRID,), (direction,))[1]
    for check in (True, False):
        sharded = functools.partial(
            jax.shard_map, mesh=MESH, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"), check_vma=check
        )
        for name, run in {
            "known length": lambda u: pj.fori_loop(0, 40, lambda i, v: local_step(v), u, slots=5),
            "unknown length": lambda u: pj.while_loop(
                lambda c: c[0] < 40, lambda c: (c[0] + 1, local_step(c[1])), (0, u), slots=5
            )[1],
            "scan with outputs": lambda u: pj.scan(
                lambda v, _: (local_step(v), jnp.sum(v, keepdims=True)), u, None, 40, slots=5
            )[0],
        }.items():
            label = f"shard_map check_vma={check}, {name}"
            try:
                report(label, close(jax.jit(jax.grad(energy(sharded(run))))(GRID), expected))
                slope = jax.grad(energy(sharded(run)))
                second = jax.jit(functools.partial(jax.jvp, slope))((GRID,), (direction,))[1]
                report(f"{label}, forward over reverse", close(second, expected_second))
            except Exception as error:
                report(f"{label} ({type(error).__name__}: {str(error)[:300]})", False)


if __name__ == "__main__":
    report("four devices", len(jax.devices()) == 4)
    automatic()
    manual()
