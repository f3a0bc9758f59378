"""Known values and replay counts, graphs of all shapes, loops of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

import pebbling as pb
from pebbling.store import Compressed, Disk, Memory


def counted(power=2):
    """An op x**power that counts its runs."""
    runs = []

    @pb.op
    def raised(x):
        runs.append(x)
        return x**power

    @raised.vjp
    def _(x, y, g):
        return power * x[0] ** (power - 1) * g

    @raised.jvp
    def _(x, y, dx):
        return power * x[0] ** (power - 1) * dx[0]

    @raised.vjp_dot
    def _(x, dx, y, dy, g, dg):
        return power * (power - 1) * x[0] ** (power - 2) * dx[0] * g + power * x[0] ** (power - 1) * dg

    return raised, runs


@pb.op
def add(x, y):
    return x + y


@add.vjp
def _(x, y, g):
    return g, g


@add.jvp
def _(x, y, dx):
    return dx[0] + dx[1]


@pb.op
def multiply(x, y):
    return x * y


@multiply.vjp
def _(x, y, g):
    return g * x[1], g * x[0]


@multiply.jvp
def _(x, y, dx):
    return dx[0] * x[1] + x[0] * dx[1]


def test_a_square_is_replayed_once_for_every_derivative():
    square, runs = counted()
    tape = pb.Tape()
    x = tape.leaf(3.0)
    y = square.replay()(x)
    assert len(runs) == 1
    assert tape.pullback(y)[x] == 6.0
    assert len(runs) == 2
    assert tape.pullback(y)[x] == 6.0
    assert len(runs) == 3
    gradient, change = tape.hvp(y, {x: 1.0})
    assert (gradient[x], change[x]) == (6.0, 2.0)
    assert len(runs) == 4


def test_a_kept_square_is_never_replayed():
    square, runs = counted()
    tape = pb.Tape()
    x = tape.leaf(3.0)
    y = square(x)
    tape.pullback(y)
    tape.hvp(y, {x: 1.0})
    assert len(runs) == 1


@pytest.mark.parametrize("keep", ["all", "none"])
def test_a_chain_of_two_squares(keep):
    square, runs = counted()
    tape = pb.Tape(keep=keep)
    x = tape.leaf(2.0)
    y = square(x)
    z = square(y)
    assert (y.value, z.value) == (4.0, 16.0)
    assert tape.pullback(z)[x] == 32.0
    assert runs.count(2.0) == runs.count(4.0) == (1 if keep == "all" else 2)
    x = tape.leaf(3.0)
    z = square(square(x))
    del runs[:]
    gradient, change = tape.hvp(z, {x: 1.0})
    assert (z.value, gradient[x], change[x]) == (81.0, 108.0, 108.0)
    assert runs.count(3.0) == runs.count(9.0) == (0 if keep == "all" else 2)


def test_a_cube():
    cube, _ = counted(3)
    tape = pb.Tape()
    x = tape.leaf(2.0)
    y = cube(x)
    gradient, change = tape.hvp(y, {x: 1.0})
    assert (gradient[x], change[x]) == (12.0, 12.0)


def test_a_seed_for_a_vector():
    scale = pb.op(lambda x: 2 * x)
    scale.vjp(lambda x, y, g: 2 * g)
    tape = pb.Tape(keep="none")
    x = tape.leaf(np.array([1.0, 2.0]))
    assert tape.pullback(scale(x), np.array([1.0, -1.0]))[x].tolist() == [2.0, -2.0]


@pytest.mark.parametrize("keep", ["all", "none"])
def test_a_diamond_and_a_repeated_input(keep):
    square, _ = counted()
    tape = pb.Tape(keep=keep)
    x = tape.leaf(3.0)
    left, right = square(x), add(x, x)
    y = multiply(left, right)
    assert y.value == 54.0
    assert tape.pullback(y)[x] == 54.0
    assert tape.hvp(y, {x: 1.0})[1][x] == 36.0
    assert tape.pullback(multiply(x, x))[x] == 6.0


def test_tangents_of_some_leaves_and_of_none():
    calls = []

    @pb.op
    def product(x, y):
        return x * y

    product.vjp(lambda x, y, g: (g * x[1], g * x[0]))

    @product.jvp
    def _(x, y, dx):
        calls.append(dx)
        return dx[0] * x[1] + x[0] * dx[1]

    square, _ = counted()
    tape = pb.Tape()
    x, y = tape.leaf(3.0), tape.leaf(5.0)
    z = add(product(x, y), square(y))
    gradient, change = tape.hvp(z, {y: 1.0})
    assert (gradient[x], gradient[y]) == (5.0, 13.0)
    assert (change[x], change[y]) == (1.0, 2.0)
    assert len(calls) == 1
    gradient, change = tape.hvp(z, {})
    assert (gradient[x], gradient[y], change[x], change[y]) == (5.0, 13.0, 0.0, 0.0)
    assert len(calls) == 1  # nothing has a tangent, so nothing is pushed forward


def test_dead_branches_are_not_replayed():
    square, runs = counted()
    cube, cubes = counted(3)
    tape = pb.Tape(slots=2, keep="none")
    x = tape.leaf(1.1)
    y = x
    for _ in tape.loop(range(6)):
        y = square(y)
        unused = cube(y)
    dead = cube(unused)
    z = square(y)
    del runs[:], cubes[:]
    tape.pullback(z)
    assert not cubes
    assert len(runs) == pb.Revolve(6, 2).cost.forwards - 5 + 1  # the first sweep was the recording
    tape.pullback(dead)
    assert len(cubes) == 2  # the last of the loop and the one after it


@pytest.mark.parametrize("slots", [1, 3, 5])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_a_loop_is_replayed_as_often_as_its_plan_says(steps, slots):
    square, runs = counted()
    tape = pb.Tape(slots=slots)
    x = y = tape.leaf(1.0)
    for _ in tape.loop(range(steps)):
        y = square(y)
    assert len(runs) == steps
    tape.pullback(y)
    assert len(runs) == steps + pb.Revolve(steps, slots).cost.forwards - (steps - 1)
    del runs[:]
    tape.pullback(y)
    assert len(runs) == pb.Revolve(steps, slots).cost.forwards
    assert x.value == 1.0


@pytest.mark.parametrize(
    "schedule",
    [
        pb.StoreAll(30),
        pb.Revolve(30, 3),
        pb.Periodic(30, 4),
        pb.Mixed(30, 5),
        pb.Mixed(30, 6, tape=2),
        pb.Uneven([1.0 + i % 4 for i in range(30)], slots=4),
        pb.Hierarchical(30, [pb.Tier(2), pb.Tier(4, 0.5, 0.5)]),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_any_schedule(schedule):
    def gradients(budget):
        tape = pb.Tape(**budget)
        x, a = tape.leaf(np.array([0.3, 0.4])), tape.leaf(np.array([1.01, 0.99]))
        u = x
        for _ in tape.loop(range(30)):
            u = multiply(add(u, a), a)
        found = [tape.pullback(u, np.ones(2)) for _ in range(2)]
        change = tape.hvp(u, {a: np.ones(2)}, np.ones(2))[1]
        return [part[leaf].tobytes() for part in [*found, change] for leaf in (x, a)]

    with Memory() as store:
        budget = {"schedule": schedule, "store": store if len(schedule.model.rooms) > 1 else None}
        assert gradients(budget) == gradients({"slots": 30})
        assert store.keys() == []


@pytest.mark.parametrize("make", ["memory", "disk", "compressed"])
def test_snapshots_in_a_store(make, tmp_path):
    def run(**options):
        tape = pb.Tape(slots=4, **options)
        x, a = tape.leaf(np.linspace(0, 1, 50)), tape.leaf(np.linspace(1, 0.9, 50))
        u = x
        for _ in tape.loop(range(25)):
            u = add(multiply(u, a), x)
        return tape, [tape.pullback(u, np.ones(50))[leaf].tobytes() for leaf in (x, a)]

    store = {"memory": Memory, "disk": lambda: Disk(tmp_path), "compressed": lambda: Compressed(Memory())}[make]()
    with store:
        tape, found = run(store=store)
        assert found == run()[1]
        assert store.keys() == []
        tape.free()


def test_a_loop_of_unknown_length_and_one_that_is_left_early():
    square, runs = counted()
    results = []
    for items, stop in ((None, 12), (range(100), 12), (iter(range(13)), None), (range(13), None)):
        tape = pb.Tape(slots=3)
        x = u = tape.leaf(1.01)
        for i in tape.loop(items):
            u = square(u)
            if i == stop:
                break
        results.append((u.value, tape.pullback(u)[x], tape.pullback(u)[x], tape.hvp(u, {x: 1.0})[1][x]))
    assert len(set(results)) == 1
    assert len(runs) > 0


def test_an_exception_in_the_body_ends_the_loop_there():
    square, _ = counted()
    tape = pb.Tape(slots=2)
    x = u = tape.leaf(1.1)
    try:
        for i in tape.loop(range(50)):
            u = square(u)
            if i == 3:
                raise OverflowError
    except OverflowError:
        pass
    y = add(u, x)
    assert y.value == pytest.approx(1.1**16 + 1.1)
    assert tape.pullback(y)[x] == pytest.approx(16 * 1.1**15 + 1)


def test_an_op_that_fails_leaves_no_trace():
    @pb.op
    def broken(x):
        raise FloatingPointError

    square, _ = counted()
    tape = pb.Tape(slots=2)
    x = u = tape.leaf(1.5)
    for _ in tape.loop(range(3)):
        with pytest.raises(FloatingPointError):
            broken(u)
        u = square(u)
    assert tape.pullback(u)[x] == 8 * 1.5**7


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_handles_used_two_steps_later_and_loops_in_loops(slots):
    def run(**options):
        tape = pb.Tape(**options)
        x, k = tape.leaf(np.array([0.5, 0.2])), tape.leaf(np.array([0.9, 1.1]))
        scaled = multiply(x, k)
        oldest, old, now = x, x, x
        for _ in tape.loop(range(9)):
            inner = add(now, oldest)
            for _ in tape.loop(range(4)):
                inner = add(multiply(inner, k), scaled)
            oldest, old, now = old, now, multiply(inner, k)
        for _ in tape.loop(range(5)):
            now = add(multiply(now, k), old)
        y = multiply(now, scaled)
        found, again = tape.pullback(y, np.ones(2)), tape.pullback(y, np.ones(2))
        change = tape.hvp(y, {k: np.ones(2)}, np.ones(2))[1]
        return [part[leaf].tobytes() for part in (found, again, change) for leaf in (x, k)]

    expected = run(slots=1000)
    assert run(slots=slots) == expected
    assert run(slots=slots, keep="none") == expected
    assert run() == expected


def test_results_that_are_collected_and_read_after_the_loop():
    tape = pb.Tape(slots=2)
    x = u = tape.leaf(1.1)
    history = []
    for _ in tape.loop(range(40)):
        u = multiply(u, x)
        history.append(u)
    total = history[0]
    for value in history[1:]:
        total = add(total, value)
    slope = sum(i * 1.1 ** (i - 1) for i in range(2, 42))
    assert tape.pullback(total)[x] == pytest.approx(slope, rel=1e-13)
    curvature = sum(i * (i - 1) * 1.1 ** (i - 2) for i in range(2, 42))
    assert tape.hvp(total, {x: 1.0})[1][x] == pytest.approx(curvature, rel=1e-13)


def test_several_outputs_of_which_one_is_unused():
    split = pb.op(lambda x: (np.sin(x), np.cos(x), 7))

    @split.vjp
    def _(x, y, g):
        assert g[1].shape == x[0].shape
        return g[0] * y[1] - g[1] * y[0]

    tape = pb.Tape(slots=2)
    x = u = tape.leaf(np.array([0.4, 0.8]))
    for _ in tape.loop(range(5)):
        u, _, number = split(u)
    assert number.value == 7
    slope, value = np.ones(2), np.array([0.4, 0.8])
    for _ in range(5):
        slope, value = slope * np.cos(value), np.sin(value)
    np.testing.assert_allclose(tape.pullback(u, np.ones(2))[x], slope, rtol=1e-14)


def test_static_keywords_and_arrays_that_change_from_step_to_step():
    shift = pb.op(lambda x, forcing, *, t: x * (1 + t) + forcing)
    shift.vjp(lambda x, y, g, *, t: (g * (1 + t), None))
    tape = pb.Tape(slots=3)
    forcing = np.arange(20.0).reshape(10, 2)
    x = u = tape.leaf(np.ones(2))
    for i in tape.loop(range(10)):
        u = shift(u, forcing[i], t=0.1 * i)
    expected = np.prod([1 + 0.1 * i for i in range(10)])
    np.testing.assert_allclose(tape.pullback(u, np.ones(2))[x], [expected] * 2, rtol=1e-14)


def test_recording_goes_on_after_a_pullback_and_a_leaf_begins_anew_after_free():
    square, _ = counted()
    tape = pb.Tape(keep="none", slots=2)
    x = tape.leaf(1.5)
    y = square(x)
    assert tape.pullback(y)[x] == 3.0
    for _ in tape.loop(range(3)):
        y = square(y)
    z = square(y)
    assert tape.pullback(z)[x] == pytest.approx(32 * 1.5**31, rel=1e-14)
    tape.free()
    x = tape.leaf(2.0)
    assert tape.pullback(square(x))[x] == 4.0


def test_an_op_on_plain_values_is_the_function():
    square, _ = counted()
    assert square(3.0) == 9.0
    assert square.retain()(3.0) == 9.0


def test_gradients_are_private_and_leaves_without_influence_get_zeros():
    tape = pb.Tape()
    x, y, unused = tape.leaf(np.ones(2)), tape.leaf(np.ones(2)), tape.leaf(np.ones(3))
    seed = np.ones(2)
    found = tape.pullback(add(x, y), seed)
    found[x][0] = 5.0
    assert found[y].tolist() == [1.0, 1.0]
    assert seed.tolist() == [1.0, 1.0]
    assert found[unused].tolist() == [0.0] * 3
    assert tape.pullback(x, seed)[x].tolist() == [1.0, 1.0]


def test_retained_results_of_a_loop_are_not_replayed():
    square, runs = counted()
    tape = pb.Tape(slots=2)
    x = u = tape.leaf(1.001)
    for _ in tape.loop(range(8)):
        u = square.retain()(u)
    tape.pullback(u)
    assert len(runs) == 8
    assert tape.hvp(u, {x: 1.0})[1][x] == pytest.approx(256 * 255 * 1.001**254)
    assert len(runs) == 8


def test_cheap_ops_are_replayed_and_others_kept():
    runs = []
    cheap = pb.op(cost="cheap")(lambda x: runs.append("cheap") or x * x)
    costly = pb.op(cost="expensive")(lambda x: runs.append("expensive") or x * x)
    for one in (cheap, costly):
        one.vjp(lambda x, y, g: 2 * x[0] * g)
    tape = pb.Tape(keep="cheap")
    x = tape.leaf(2.0)
    y = costly(cheap(x))
    del runs[:]
    assert tape.pullback(y)[x] == 32.0
    assert runs == ["cheap"]
