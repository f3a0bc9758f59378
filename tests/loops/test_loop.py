"""Gradients through checkpointed loops are those of a tape of the whole loop, to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_loops import run
from pebbling import (
    BudgetError,
    Mixed,
    Online,
    PebblingError,
    Periodic,
    ReplayError,
    Revolve,
    SourceError,
    StoreAll,
    Uneven,
)
from pebbling.chain import Hierarchical, Tier
from pebbling.chain.binomial import advances
from pebbling.engine import numpy as engine
from pebbling.loops import Options
from pebbling.numpy import grad, hvp, loop, value_and_grad

RNG = np.random.default_rng(7)
X, A, B, V = (RNG.normal(size=5) for _ in range(4))


class Pair(NamedTuple):
    u: object
    v: object


def plain_loop(body, state, steps, *args, **_):
    for i in range(steps) if isinstance(steps, int) else steps:
        state = body(i, state, *args)
    return state


def same(one, two):
    one, two = engine.transform.flatten(one)[0], engine.transform.flatten(two)[0]
    assert len(one) == len(two)
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a, b, strict=True)


# Each takes the loop to use, and is differentiated with respect to (x, a, b).
def one_array(run_loop, n, **options):
    def f(x, a, b):
        return np.sum(run_loop(lambda i, s, a, b: np.tanh(s * a + b) + s * 0.1, x, n, a, b, **options))

    return f


def tree(run_loop, n, **options):
    def body(i, state, p):
        u, v = state["p"]
        return {"p": Pair(u + 0.1 * v, v - 0.1 * p["a"] * np.sin(u)), "n": state["n"] + 1, "t": state["t"] + 0.5}

    def f(x, a, b):
        end = run_loop(body, {"p": Pair(x, b), "n": 3, "t": 0.25}, n, {"a": a, "unused": [b]}, **options)
        assert end["n"] == 3 + n
        return np.sum(end["p"].u * end["p"].v)

    return f


def parameters_only(run_loop, n, **options):
    """The initial state is not differentiated, one leaf never is, and one is only reached in the third step."""

    def body(i, state, a):
        s, late, clock = state
        if i == 2:
            late = late + np.sum(s)
        return s * a + clock, late * 0.5, clock + float(clock) * 0.1

    def f(x, a, b):
        s, late, clock = run_loop(body, (np.ones(5), 2.0, 0.3), n, a, **options)
        return np.sum(s * b) + late + np.sum(x) * float(clock)

    return f


def generator(run_loop, n, **options):
    def body(i, state, a):
        s, rng = state
        return np.sin(s * a) + rng.normal(size=5), rng

    def f(x, a, b):
        s, _ = run_loop(body, (x, np.random.default_rng(5)), n, a, **options)
        return np.sum(s * b)

    return f


def used_outside(run_loop, n, **options):
    """One value as several leaves of the state and several arguments, and used before and after the loop too."""

    def body(i, state, x, again, a):
        s, t = state
        return np.tanh(s * x + t) * again, t * a + s * again

    def f(x, a, b):
        c = x * a
        s, t = run_loop(body, (x, x), n, x, x, a, **options)
        u, v = run_loop(body, (c, b), n, x, c, c, **options)
        return np.sum(s * t * c + a * b * x) + np.sum(u * v * a)

    return f


PROGRAMS = [one_array, tree, parameters_only, generator, used_outside]


@st.composite
def budgets(draw):
    n = draw(st.integers(0, 24))
    slots = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["slots", "runs", "periodic", "mixed", "all", "online", "none", "uneven"]))
    schedule = {
        "runs": lambda: Revolve(n, slots, prefer="runs"),
        "periodic": lambda: Periodic(n, slots),
        "mixed": lambda: Mixed(n, slots, draw(st.sampled_from([0.5, 1, 2, 3]))),
        "all": lambda: StoreAll(n),
        "online": lambda: Online(slots),
        "uneven": lambda: Uneven([1 + i % 3 for i in range(n)], slots=slots),
    }
    if kind == "slots":
        return n, {"slots": slots}
    return n, ({} if kind == "none" else {"schedule": schedule[kind]()})


@given(budgets(), st.sampled_from(PROGRAMS), st.sampled_from(["last", "all", False]))
@settings(max_examples=150, deadline=None)
def test_gradients_are_those_of_a_whole_tape(budget, program, verify):
    n, options = budget
    value, expected = value_and_grad(program(plain_loop, n), (0, 1, 2))(X, A, B)
    ours, found = value_and_grad(program(loop, n, verify=verify, **options), (0, 1, 2))(X, A, B)
    assert value == ours
    same(found, expected)


@given(budgets(), st.sampled_from(PROGRAMS))
@settings(max_examples=60, deadline=None)
def test_hessian_products_are_those_of_a_whole_tape(budget, program):
    n, options = budget
    for argnum in (0, 1):
        same(
            hvp(program(loop, n, **options), argnum)(X, A, B, V),
            hvp(program(plain_loop, n), argnum)(X, A, B, V),
        )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("slots", [1, 3, 9, None])
def test_hessian_products_of_longer_loops_are_those_of_a_whole_tape(program, slots):
    expected = hvp(program(plain_loop, 90))(X, A, B, V)
    same(hvp(program(loop, 90, slots=slots))(X, A, B, V), expected)


def test_an_argument_without_a_tangent_costs_nothing():
    """Derivatives along one argument: the others are constants, and nothing is computed for their tangents."""
    calls = 0

    def body(i, s, a):
        nonlocal calls
        calls += isinstance(a, engine.Dual)
        return s * a

    hvp(lambda x, a: np.sum(loop(body, x, 40, a, slots=4)))(X, A, V)
    assert calls == 0


@given(budgets(), st.sampled_from(PROGRAMS))
@settings(max_examples=40, deadline=None)
def test_derivatives_along_a_direction_are_those_of_the_plain_loop(budget, program):
    n, options = budget
    expected = engine.jvp(program(plain_loop, n), (X, A, B), (V, B, A))
    same(engine.jvp(program(loop, n, **options), (X, A, B), (V, B, A)), expected)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_loops_of_unknown_length(slots):
    def body(i, s, a):
        return s + a * np.cos(s) * 0.1

    def more(s, i):
        return bool(np.sum(s) < 9.0) and i < 60

    def plain(x, a):
        i = 0
        while more(x, i):
            x = body(i, x, a)
            i += 1
        return np.sum(x**2)

    def ours(x, a):
        return np.sum(loop(body, x, more, a, slots=slots) ** 2)

    start, slope = np.zeros(5), np.abs(A) + 1
    same(grad(ours, (0, 1))(start, slope), grad(plain, (0, 1))(start, slope))
    same(hvp(ours)(start, slope, V), hvp(plain)(start, slope, V))
    assert np.array_equal(loop(body, start, more, slope), loop(body, start, more, slope, schedule=Online(3)))


def test_a_range_passes_its_members():
    def ours(x):
        return np.sum(loop(lambda i, s: s * i, x, range(5, 1, -1), slots=2))

    assert np.array_equal(grad(ours)(X), np.full(5, 120.0))


@pytest.mark.parametrize(("n", "slots"), [(1, 1), (2, 1), (10, 3), (50, 7), (100, 5), (300, 8)])
def test_steps_run_exactly_as_often_as_the_binomial_optimum(n, slots):
    calls = 0

    def body(i, s):
        nonlocal calls
        calls += 1
        return s + 0.1

    grad(lambda x: np.sum(loop(body, x, n, slots=slots)))(X)
    # One more than the plan: the last step runs in the sweep, to give the result, and again with a tape.
    assert calls == n + advances(n, slots) + 1


def test_a_loop_within_a_loop_replays_and_keeps_no_more_than_each_alone():
    calls = 0

    def inner(j, s, a):
        nonlocal calls
        calls += 1
        return np.sin(s * a)

    def outer(run_loop, **options):
        def body(i, s, a):
            return run_loop(inner, s, 12, a, **options) * a

        return lambda x, a: np.sum(run_loop(body, x, 10, a, **options))

    expected = grad(outer(plain_loop), (0, 1))(X, A)
    calls = 0
    found = grad(outer(loop, slots=3), (0, 1))(X, A)
    # Outside, whole inner loops run once a replay; inside, each of the ten is reversed once.
    assert calls == (advances(10, 3) + 1) * 12 + 10 * (12 + advances(12, 3) + 1)
    same(found, expected)
    same(hvp(outer(loop, slots=3))(X, A, V), hvp(outer(plain_loop))(X, A, V))


def test_without_anything_differentiated_it_is_the_plain_loop():
    seen = []
    end = loop(lambda i, s: (seen.append(i), s + 1.0)[1], X, 4, slots=2)
    assert np.array_equal(end, X + 1 + 1 + 1 + 1)
    assert seen == [0, 1, 2, 3]


def test_a_hidden_dependency_is_refused_by_name():
    def hidden(x, weight):
        return np.sum(loop(lambda i, s: s * weight, x, 3))

    with pytest.raises(SourceError, match="depends on weight, which is being differentiated"):
        grad(hidden, (0, 1))(X, A)
    with pytest.raises(SourceError, match="weight"):
        grad(hidden, 1)(X, A)
    with pytest.raises(SourceError, match="weight"):
        engine.jvp(hidden, (X, A), (V, B))
    same(grad(hidden, 0)(X, A), grad(lambda x: np.sum(plain_loop(lambda i, s: s * A, x, 3)))(X))


def test_a_value_of_an_outer_derivative_may_be_used():
    """The derivative along a closure is not lost: the loop runs on values that carry it."""

    def gradient(w, run_loop):
        return np.sum(grad(lambda x: np.sum(run_loop(lambda i, s: np.sin(s * w), x, 6)))(X) * B)

    same(engine.jvp(lambda w: gradient(w, loop), (A,), (V,)), engine.jvp(lambda w: gradient(w, plain_loop), (A,), (V,)))


def test_a_step_that_is_not_repeatable_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ReplayError, match="came out differently"):
        grad(lambda x: np.sum(loop(lambda i, s: s + rng.normal(size=5), x, 9, slots=2)))(X)
    calls = 0

    def slow_drift(i, s):
        nonlocal calls
        calls += i == 3
        return s * (1.0 + calls)

    with pytest.raises(ReplayError, match=r"state after step 0 of .*slow_drift"):
        grad(lambda x: np.sum(loop(slow_drift, x, 9, slots=2, verify="all")))(X)


def test_a_step_that_writes_into_its_input_is_refused():
    def body(i, s, a):
        s += a
        return s

    x, a = X.copy(), A.copy()
    with pytest.raises(ReplayError, match="writes into its input"):
        grad(lambda x: np.sum(loop(body, 1.0 * x, 6, a, slots=2)))(x)

    def spoil(i, s, a):
        a += 1.0
        return s * a

    with pytest.raises(ReplayError, match="writes into its input"):
        grad(lambda x: np.sum(loop(spoil, x, 6, a)))(x)
    assert a.flags.writeable
    assert x.flags.writeable
    assert np.array_equal(x, X)


def test_arrays_are_writable_again_afterwards():
    x, a = X.copy(), A.copy()
    grad(lambda x: np.sum(loop(lambda i, s, a: s * a, x, 6, a, slots=2)))(x)
    assert x.flags.writeable
    assert a.flags.writeable
    engine.vjp(lambda x: loop(lambda i, s, a: s * a, x, 6, a, slots=2), x)
    assert a.flags.writeable


def test_one_second_way_back_begins_with_a_new_sweep():
    from pebbling.budget import Budget
    from pebbling.loops.frameworks import numpy_framework
    from pebbling.loops.node import CustomLoop
    from pebbling.loops.plan import Settle
    from pebbling.loops.program import Trees
    from pebbling.tree import flatten

    framework = numpy_framework()
    tape = engine.step.StepTape()
    tape.append(None)
    traced = engine.var.Var(X, tape, 0)
    program = Trees(lambda i, s, a: np.tanh(s * a), range(9), None, flatten((A,))[1])
    node = CustomLoop(framework, program, [traced], [A], Settle(Budget(slots=3)), "last", ())
    _, passage = node.run([X])
    first, second = [None], [None]
    node.vjp(passage, [np.ones(5)], first)
    node.vjp(passage, [np.ones(5)], second)
    same(second, first)
    expected = grad(lambda x: np.sum(plain_loop(lambda i, s: np.tanh(s * A), x, 9)))(X)
    same(first, [expected])


def test_arguments_that_make_no_sense_are_refused():
    def f(**options):
        return grad(lambda x: np.sum(loop(lambda i, s: s * 2, x, 5, **options)))(X)

    with pytest.raises(ValueError, match="at most one of"):
        f(slots=2, memory="1MB")
    with pytest.raises(ValueError, match="schedule is for 6 steps"):
        f(schedule=Revolve(6, 2))
    with pytest.raises(ValueError, match="tiers"):
        f(schedule=Hierarchical(5, [Tier(1), Tier(2)]))
    with pytest.raises(ValueError, match="verify must be"):
        f(verify="sometimes")
    with pytest.raises(ValueError, match="Online schedule"):
        grad(lambda x: np.sum(loop(lambda i, s: s * 2, x, lambda s, i: i < 3, schedule=StoreAll(3))))(X)
    with pytest.raises(ValueError, match="schedule is for 6 steps"):
        loop(lambda i, s: s, X, 5, schedule=Revolve(6, 2))
    with pytest.raises(PebblingError, match="same structure"):
        grad(lambda x: np.sum(loop(lambda i, s: (s, s), x, 5)[0]))(X)


def test_a_budget_too_small_names_the_smallest_that_works():
    def f(memory):
        return grad(lambda x: np.sum(loop(lambda i, s: np.tanh(s), x, 50, memory=memory)))(np.ones(10_000))

    with pytest.raises(BudgetError) as caught:
        f("100kB")
    assert caught.value.minimum > 100_000
    expected = f("100MB")
    same(f(caught.value.minimum), expected)


def test_checkpoint_is_one_of_what_it_takes():
    with pytest.raises(TypeError, match="number of slots"):
        grad(np.sum, checkpoint=1.5)


def emitting(item, state, consts):
    (s,), (a,) = state, consts
    new = np.sin(s * a) + item
    return item == 7, [new], [new * 2.0], [np.sum(new)]


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("options", [{"slots": 2}, {"slots": 20}, {"schedule": "all"}, {"memory": "1MB"}])
def test_the_runtime_gives_last_and_emitted_outputs_and_stops_early(stops, options):
    items = [1.0, 2.0, 3.0, 7.0] if not stops else iter([1.0, 2.0, 3.0, 7.0, 8.0, 9.0])
    if options.get("schedule") == "all":
        if stops:
            options = {"schedule": Online(3)}
        else:
            options = {"schedule": StoreAll(4)}
    taken = list(items)

    def ours(x, a):
        given = taken if not stops else iter(taken)
        end = run(emitting, given, [x], [a], Options(**options), stops=stops)
        assert end.steps == 4
        assert bool(end.flag)
        return (
            np.sum(end.state[0])
            + np.sum(end.outs[0] ** 2)
            + sum(part[0] * (i + 1) for i, part in enumerate(end.emitted))
        )

    def plain(x, a):
        sums, s = [], x
        for item in taken[:4]:
            s = np.sin(s * a) + item
            sums.append(np.sum(s))
        return np.sum(s) + np.sum((s * 2.0) ** 2) + sum(part * (i + 1) for i, part in enumerate(sums))

    one, two = value_and_grad(ours, (0, 1))(X, A), value_and_grad(plain, (0, 1))(X, A)
    assert one[0] == two[0]
    for mine, other in zip(one[1], two[1]):
        np.testing.assert_allclose(mine, other, rtol=1e-13)


def test_the_runtime_lets_a_step_write_into_the_leaves_it_names():
    def step(i, state, consts):
        (s,), (a,) = state, consts
        s[i % 5] = s[i % 5] * a[i % 5] + 1.0
        return None, [s], (), ()

    def ours(x, a):
        end = run(step, range(17), [x * 1.0], [a], Options(slots=3), written=[0])
        return np.sum(end.state[0] ** 2)

    def plain(x, a):
        s = [x[i] * 1.0 for i in range(5)]
        for i in range(17):
            s[i % 5] = s[i % 5] * a[i % 5] + 1.0
        return sum(value**2 for value in s)

    for mine, other in zip(grad(ours, (0, 1))(X, A), grad(plain, (0, 1))(X, A)):
        np.testing.assert_allclose(mine, other, rtol=1e-12)
    assert run(step, range(0), [X], [A]).steps == 0
    before = X.copy()
    run(step, range(5), [X], [A], written=[0])
    assert np.array_equal(X, before)


def test_while_loops_ask_before_every_step():
    from itertools import count

    def step(i, state, consts):
        return None, [state[0] * consts[0]], (), ()

    def ours(x, a):
        return np.sum(run(step, count(), [x], [a], Options(slots=2), more=lambda state, i: i < 11).state[0])

    same(grad(ours, (0, 1))(X, A), grad(lambda x, a: np.sum(plain_loop(lambda i, s: s * a, x, 11)), (0, 1))(X, A))


def test_arguments_that_look_into_one_array_are_writable_again():
    whole = RNG.normal(size=(3, 5))
    x, a, v = whole
    hvp(lambda x, a: np.sum(loop(lambda i, s, a: np.tanh(s * a), x, 30, a, slots=3)))(x, a, v)
    grad(lambda x: np.sum(loop(lambda i, s, a: np.tanh(s * a), x, 30, a, slots=3)))(x)
    for array in (whole, x, a, v):
        assert array.flags.writeable
