"""The likeliest mistakes, and the answer that each gets: what was asked, what was found, what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pebbling as pb

u = np.linspace(0.1, 1.0, 50)
one = np.ones(50)


def advance(state, i):
    return state + 0.1 * np.sin(state)


def reverse(state, adjoint, i):
    return adjoint * (1 + 0.1 * np.cos(state))


def run(**changed):
    given = {"advance": advance, "reverse": reverse, "state": u, "steps": 20, "seed": one, "slots": 4} | changed
    return pb.adjoint(**given)


def two_budgets():
    run(memory="1MB")


def swapped_body():
    pb.grad(lambda u: np.sum(pb.loop(lambda state, i: state * 1.1 + i, u, 10)))(u)


def body_without_return():
    pb.grad(lambda u: np.sum(pb.loop(lambda i, state: None, u, 10)))(u)


def argnums_too_large():
    pb.grad(lambda a, b: np.sum(a * b), argnums=3)(u, u)


def hvp_without_direction():
    pb.hvp(lambda u: np.sum(u**3))(u)


def grad_of_a_torch_tensor():
    import torch

    pb.grad(lambda x: (x**2).sum())(torch.ones(3))


def grad_of_a_jax_array():
    import jax.numpy as jnp

    pb.grad(lambda x: jnp.sum(x**2))(jnp.ones(3))


def checkpoint_of_a_number():
    pb.checkpoint(8)


def handles_added():
    tape = pb.Tape()
    leaf = tape.leaf(u)
    leaf + leaf


def a_size_that_is_none():
    pb.plan(1000, state="lots")


MISTAKES = {
    two_budgets: r"at most one of slots, memory and schedule",
    swapped_body: r"body\(i, state",
    body_without_return: r"body .*None",
    argnums_too_large: r"argnums.*3.*2 arguments",
    hvp_without_direction: r"direction",
    grad_of_a_torch_tensor: r"torch.*(backward|torch\.autograd|torch\.func)",
    grad_of_a_jax_array: r"jax\.grad",
    checkpoint_of_a_number: r"slots=8",
    handles_added: r"pb\.op|@op",
    a_size_that_is_none: r"64MiB",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_answered_by_what_to_do(mistake) -> None:
    with pytest.raises((pb.PebblingError, ValueError, TypeError)) as found:
        mistake()
    assert re.search(MISTAKES[mistake], str(found.value), re.DOTALL), f"{type(found.value).__name__}: {found.value}"
