"""The same loop under HIPS autograd."""

from __future__ import annotations

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from pebbling import Online, SourceError, StoreAll
from pebbling.loops import loop

RNG = np.random.default_rng(11)
X, A, V = (RNG.normal(size=6) for _ in range(3))


def body(i, state, a):
    s, clock = state
    return anp.tanh(s * a) + 0.1 * s, clock + 1.0


def plain(x, a):
    state = x, 0.5
    for i in range(9):
        state = body(i, state, a)
    return anp.sum(state[0] ** 2) * state[1]


def ours(**options):
    def f(x, a):
        s, clock = loop(body, (x, 0.5), 9, a, **options)
        return anp.sum(s**2) * clock

    return f


@pytest.mark.parametrize("options", [{"slots": 2}, {}, {"schedule": StoreAll(9)}, {"schedule": Online(3)}])
def test_gradients_and_second_derivatives_are_those_of_plain_autograd(options):
    f = ours(**options)
    for argnum in (0, 1):
        np.testing.assert_allclose(autograd.grad(f, argnum)(X, A), autograd.grad(plain, argnum)(X, A), rtol=1e-13)
    found = autograd.make_jvp(autograd.grad(f))(X, A)(V)[1]
    np.testing.assert_allclose(found, autograd.make_jvp(autograd.grad(plain))(X, A)(V)[1], rtol=1e-12)


def test_a_pullback_can_be_used_twice():
    pullback, _ = autograd.make_vjp(ours(slots=2))(X, A)
    first = pullback(1.0)
    np.testing.assert_array_equal(pullback(1.0), first)
    np.testing.assert_allclose(first, autograd.grad(plain)(X, A), rtol=1e-13)


def test_a_hidden_dependency_is_refused_by_name():
    def hidden(weight):
        return anp.sum(loop(lambda i, s: s * weight, X, 3))

    with pytest.raises(SourceError, match="weight"):
        autograd.grad(hidden)(A)
