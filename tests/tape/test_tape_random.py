"""Whatever the program and the budget, the gradient is that of keeping everything, to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tape_programs import Plain, Taped, execute, programs

import pebbling as pb
from helpers import same

VALUES = [np.array([0.3, -0.7]), np.array([0.9, 0.2]), np.array([-0.4, 0.6]), np.array([0.1, 1.1])]
BUDGETS = st.one_of(
    st.builds(dict, slots=st.integers(1, 6)),
    st.just({}),
    st.builds(dict, schedule=st.builds(pb.Online, st.integers(1, 4))),
    st.builds(dict, memory=st.sampled_from([4 * 10**6, 10**9])),
)
SEED = np.array([1.0, -2.0])


def plainly(program, values=VALUES):
    target = Plain()
    leaves, result = execute(target, program, values)
    found = target.pullback(result, SEED)
    return result.value, [found.get(leaf, np.zeros(2)) for leaf in leaves]


@settings(max_examples=150, deadline=None)
@given(programs(), BUDGETS, st.sampled_from(["all", "cheap", "none"]))
def test_gradients_equal_those_of_keeping_everything(program, budget, keep):
    with np.errstate(all="ignore"):
        value, expected = plainly(program)
        target = Taped(**budget, keep=keep)
        leaves, result = execute(target, program, VALUES)
        assert same(result.value, value)
        for _ in range(2):
            found = target.pullback(result, SEED)
            for leaf, gradient in zip(leaves, expected):
                assert same(found[leaf] + 0.0, gradient + 0.0)


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(1, 4), st.sampled_from(["all", "cheap", "none"]))
def test_hessian_vector_products_equal_differences_of_gradients(program, slots, keep):
    direction = [np.array([0.2, -0.1]), None, np.array([0.3, 0.4]), np.array([-0.2, 0.1])]
    target = Taped(slots=slots, keep=keep)
    with np.errstate(all="ignore"):
        leaves, result = execute(target, program, VALUES)
        tangents = {leaf: v for leaf, v in zip(leaves, direction) if v is not None}
        gradient, change = target.tape.hvp(result, tangents, SEED)
        _, expected = plainly(program)
        for leaf, part in zip(leaves, expected):
            assert same(gradient[leaf] + 0.0, part + 0.0)
        if not np.all(np.isfinite(result.value)) or max(abs(part).max() for part in expected) > 1e3:
            return
        size = 1e-6
        ahead, behind = (
            plainly(program, [x if v is None else x + sign * size * v for x, v in zip(VALUES, direction)])[1]
            for sign in (1, -1)
        )
    scale = max(1.0, *[abs(part).max() for part in expected], *[abs(part).max() for part in change.values()])
    for leaf, one, other in zip(leaves, ahead, behind):
        np.testing.assert_allclose(change[leaf], (one - other) / (2 * size), rtol=1e-3, atol=1e-5 * scale**2)
