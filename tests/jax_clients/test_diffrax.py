"""``pebbling.jax.diffrax.Adjoint`` in diffrax's own solves, against its own adjoint."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pebbling.jax as pj
from pebbling.jax.diffrax import Adjoint

WIDTH = 3
Y = jnp.array([0.5, -0.2, 0.8])
A = jnp.array([[-0.5, 0.3, 0.1], [0.2, -0.4, 0.3], [-0.1, 0.2, -0.6]])
TIMES = jnp.linspace(0.0, 1.0, 23)
ROUGH = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, (), jax.random.key(0))
THEIRS = diffrax.RecursiveCheckpointAdjoint(checkpoints=6)


def solve(y, a, adjoint, solver=None, noise=None, dt=0.05, **options):
    term = diffrax.ODETerm(lambda t, y, a: jnp.tanh(a @ y))
    if noise is not None:
        term = diffrax.MultiTerm(term, diffrax.ControlTerm(lambda t, y, a: 0.3 * y, noise))
    solver = diffrax.Euler() if solver is None else solver
    return diffrax.diffeqsolve(term, solver, 0.0, 1.0, dt, y, a, adjoint=adjoint, max_steps=100, **options)


def total(y, a, adjoint, **options):
    found = solve(y, a, adjoint, **options)
    values = jax.tree.leaves(found.ys) + ([] if found.interpolation is None else [found.evaluate(0.37)])
    return sum(jnp.sum(jnp.where(jnp.isfinite(v), v, 0.0) ** 2) for v in values)


SAVED = diffrax.SaveAt(
    subs=[diffrax.SubSaveAt(ts=TIMES), diffrax.SubSaveAt(steps=2, t0=True, fn=lambda t, y, a: jnp.sin(y))], dense=True
)
CASES = {
    "what is saved at times and steps, and in between": {"saveat": SAVED},
    "noise and an event": {"noise": ROUGH, "event": diffrax.Event(lambda t, y, a, **_: y[2] - 0.6)},
    "adaptive steps": {
        "solver": diffrax.Bosh3(), "stepsize_controller": diffrax.PIDController(rtol=1e-3, atol=1e-4),
        "saveat": diffrax.SaveAt(t1=True),
    },
}  # fmt: skip


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_gradients_are_those_of_diffrax(options):
    gradient = jax.jit(jax.grad(functools.partial(total, **options), argnums=(0, 1)), static_argnums=2)
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6),
        gradient(Y, A, Adjoint(slots=6)),
        gradient(Y, A, THEIRS),
    )


def temporary(adjoint, times):
    loss = functools.partial(total, adjoint=adjoint, saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, times)))
    return jax.jit(jax.grad(loss)).lower(Y, A).compile().memory_analysis().temp_size_in_bytes


def test_what_is_saved_is_in_no_snapshot():
    state, saved = 4 * (WIDTH + 12), 2000 * 4 * (WIDTH + 1)
    assert temporary(Adjoint(slots=24), 2000) - temporary(Adjoint(slots=4), 2000) <= 20 * state + 2048 < saved


def test_a_budget_of_the_whole_program():
    gradient = pj.jit(jax.grad(functools.partial(total, adjoint=Adjoint())), memory="6kB")
    assert gradient.lower(Y, A).compile().memory_analysis().temp_size_in_bytes <= 6000


def test_every_order_on_request():
    def product(adjoint):
        slope = jax.grad(functools.partial(total, a=A, solver=diffrax.Heun(), dt=0.2, adjoint=adjoint))
        return jax.jit(lambda y: jax.jvp(slope, (y,), (y,))[1])(Y)

    found, expected = product(Adjoint(slots=2, any_order=True)), product(diffrax.DirectAdjoint())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_noise_that_forgets_is_refused():
    with pytest.raises(ValueError, match=r"UnsafeBrownianPath.*VirtualBrownianTree"):
        total(Y, A, Adjoint(slots=4), noise=diffrax.UnsafeBrownianPath((), jax.random.key(0)))
