"""Any chain plan runs through the same engine."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_common import Calls, assert_same

import pebbling as pb
import pebbling.jax as pj


def body(i, x):
    return jnp.sin(x) * 1.1 + 0.01 * i


SCHEDULES = [
    pb.Revolve(23, 4),
    pb.Revolve(23, 4, prefer="runs"),
    pb.Revolve(23, 1),
    pb.Periodic(23, 4),
    pb.Periodic(23, 30),
    pb.Periodic(23, 1),
    pb.Mixed(23, 5),
    pb.Mixed(23, 9, tape=2),
    pb.StoreAll(23),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_gradients_and_second_derivatives(schedule):
    mine = lambda x: pj.fori_loop(0, 23, body, x, schedule=schedule)  # noqa: E731
    plain = lambda x: lax.fori_loop(0, 23, body, x)  # noqa: E731
    assert_same(jax.grad(mine)(0.7), jax.grad(plain)(0.7))
    assert_same(jax.grad(jax.grad(mine))(0.7), jax.grad(jax.grad(plain))(0.7))


def test_a_revolve_plan_takes_the_steps_that_it_says():
    calls = Calls()

    def counted(i, x):
        calls.mark()
        return body(i, x)

    for schedule in (pb.Revolve(23, 4), pb.Revolve(23, 4, prefer="runs")):
        run = jax.jit(jax.grad(lambda x, s=schedule: pj.fori_loop(0, 23, counted, x, schedule=s)))
        assert calls.of(run, 0.7) == schedule.cost.forwards + 1


def test_a_long_table_is_not_written_into_the_program(monkeypatch):
    from pebbling.jax import primitives

    monkeypatch.setattr(primitives, "MOST_ROWS", 3)
    calls = Calls()

    def counted(i, x):
        calls.mark()
        return body(i, x)

    run = jax.jit(jax.grad(lambda x: pj.fori_loop(0, 60, counted, x, slots=4)))
    assert calls.of(run, 0.7) == pb.Revolve(60, 4).cost.forwards + 1
    assert_same(run(0.7), jax.jit(jax.grad(lambda x: lax.fori_loop(0, 60, body, x)))(0.7))
