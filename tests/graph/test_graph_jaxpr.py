"""Jaxprs become graphs: one node an equation, the backward pass after the last equation of the value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from pebbling.graph import check, from_jaxpr, smallest, solve


def value(x):
    for _ in range(6):
        x = jnp.tanh(x @ x)
    return x.sum()


def traced(function):
    return jax.make_jaxpr(function)(jnp.ones((8, 8), jnp.float32))


def test_a_gradient_is_planned_in_less():
    graph = from_jaxpr(traced(jax.value_and_grad(value)), time=lambda equation: 1.0)
    assert graph.nodes[0].op == "dot_general"
    assert graph.storage["tanh1"].bytes == 8 * 8 * 4
    assert sum(node.backward for node in graph.nodes) > 20
    least = smallest(graph)
    assert least < 0.4 * solve(graph, None).peak
    plan = solve(graph, 2 * least, time_limit=5)
    assert check(plan).peak <= 2 * least
    assert plan.bound <= plan.overhead


def test_one_output_is_forward_alone_and_what_nothing_needs_is_left_out():
    def function(x):
        jnp.sin(x)
        return jnp.cos(x)

    graph = from_jaxpr(traced(function))
    assert [node.op for node in graph.nodes] == ["cos"]
    assert not graph.nodes[0].backward


def test_the_end_of_the_forward_pass_can_be_given():
    graph = from_jaxpr(traced(value), forward=3)
    assert [node.backward for node in graph.nodes[:5]] == [False, False, False, True, True]


def test_costs_are_given_or_counted_in_bytes():
    graph = from_jaxpr(traced(value), workspace=lambda equation: 7)
    assert graph.nodes[0].workspace == 7
    assert graph.nodes[0].time == pytest.approx(3 * 256 / 10e9)


def test_effects_run_once_and_in_order():
    def function(x):
        jax.debug.print("{}", x[0, 0])
        jax.debug.print("{}", x[0, 1])
        return jnp.cos(x)

    graph = from_jaxpr(traced(function))
    effects = [node for node in graph.nodes if not node.replayable]
    assert len(effects) == 2
    assert effects[1].after == (effects[0].name,)
