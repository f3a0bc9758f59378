"""Loops of functions that a checkpointed function calls are checkpointed, with the bits of the plain program."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pebbling as pb
from helpers import peak

U = np.array([0.3, -0.7, 1.1, 0.5])


def move(u):
    return u + 0.01 * np.sin(u)


def simulate(u, n=60):
    for _ in range(n):
        u = move(u)
    return u


class Simulation:
    def __init__(self):
        self.n = 0

    def run(self, u, n=40):
        for _ in range(n):
            u = self.move(u)
            self.n += 1
        return u

    def move(self, u):
        return u + 0.01 * np.cos(u)

    def __call__(self, u):
        return self.run(u, 20)

    def loss(self, u):
        return np.sum(self.run(u)) * self.n


def doubled(f):
    @functools.wraps(f)
    def inner(*args):
        return f(*args) * 2

    return inner


@doubled
def decorated(u):
    return simulate(u, 30)


def deeper(u, n):
    for i in range(20):
        u = np.sin(u) + 0.1 * i
    return deeper(u, n - 1) if n else u


def by_name(u):
    return np.sum(simulate(u))


def by_method(u):
    s = Simulation()
    return np.sum(s.run(u)) * s.n


def by_object(u):
    return np.sum(Simulation()(u)) + np.sum(functools.partial(simulate, n=25)(u))


def in_a_loop(u):
    for _ in range(3):
        u = simulate(u)
    return np.sum(u)


def in_a_comprehension(u):
    xs = [simulate(u * k, 20) for k in (0.5, 1.0)]
    return np.sum(xs[0] * xs[1]) + np.sum((lambda v: simulate(v, 17))(u))


def in_an_inner_function(u):
    def inner(x):
        for _ in range(30):
            x = x * 0.99 + 0.001 * k
        return x

    k = 3.0
    return np.sum(inner(u)) + np.sum(decorated(u))


def by_recursion(u):
    return np.sum(deeper(u, 2))


def too_short(u):
    return np.sum(simulate(u, 5)) + np.sum(simulate(u, 3))


PROGRAMS = [by_name, by_method, by_object, in_a_loop, in_a_comprehension, in_an_inner_function, by_recursion, too_short]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_bits_are_those_of_the_plain_program(f):
    value, gradient = pb.value_and_grad(f)(U)
    for checkpoint in (True, 2, 3):
        found, other = pb.value_and_grad(f, checkpoint=checkpoint)(U)
        assert found == value
        np.testing.assert_array_equal(other, gradient)


def test_lambdas_and_bound_methods_can_be_checkpointed():
    for f in (lambda u: np.sum(simulate(u)), Simulation().loss):
        expected = pb.grad(f)(U)
        if hasattr(f, "__self__"):
            f.__self__.n = 0
        np.testing.assert_array_equal(pb.grad(f, checkpoint=2)(U), expected)


def test_memory_is_that_of_the_snapshots():
    big = np.linspace(0.0, 1.0, 20_000)
    plain = peak(lambda: pb.grad(by_name)(big))
    assert peak(lambda: pb.grad(by_name, checkpoint=4)(big)) < plain / 5


def test_explain_lists_them():
    text = str(pb.explain(in_a_loop, U))
    assert "of simulate: for _ in range(n)" in text
    assert "60 of" in text
    assert f"it has fewer than {16} steps" in str(pb.explain(too_short, U))


def given(u, simulation):
    return np.sum(simulation.run(u))


def without(u, factor):
    return np.sum(factor(u))


def test_what_only_the_arguments_know_is_reached_or_missed_aloud():
    for f in (lambda u: given(u, Simulation()), lambda u: without(u, simulate)):
        np.testing.assert_array_equal(pb.grad(f, checkpoint=2)(U), pb.grad(f)(U))
        assert "checkpointed yes" in str(pb.explain(f, U))
    with pytest.raises(pb.SourceError, match="has called no function of yours that has one"):
        pb.grad(without, checkpoint=2)(U, np.sin)


def test_a_budget_in_bytes_is_for_the_function_itself():
    with pytest.raises(pb.SourceError, match="has no for or while loop of its own"):
        pb.grad(by_name, checkpoint="1MiB")(U)
