"""``@pebbling.checkpoint`` on JAX arrays: every plain Python loop is a checkpointed loop of one compiled program."""

import dataclasses
import functools
import inspect
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_common import Calls, assert_same

import pebbling as pb
from flat_loops import run

X = jnp.array([0.3, -0.2, 0.5], jnp.float32)
W = jnp.array(np.random.default_rng(3).normal(size=(3, 3)) * 0.5, jnp.float32)
ROWS = jnp.array(np.random.default_rng(4).normal(size=(7, 3)), jnp.float32)


class Pair(NamedTuple):
    position: jax.Array
    speed: jax.Array


@dataclasses.dataclass
class Body:
    position: jax.Array
    speed: jax.Array
    mass: float = 2.0
    name: str = "ball"


@dataclasses.dataclass(frozen=True)
class Settings:
    layers: int
    scale: float


class Model:
    def __init__(self, weights):
        self.weights, self.layers, self.calls = weights, 2, 0

    def step(self, x):
        for _ in range(self.layers):
            x = jnp.tanh(self.weights @ x)
        return x


def over_a_range(x, w):
    for i in range(17):
        x = jnp.sin(w @ x) + 0.01 * i
    return jnp.sum(x**2)


def over_a_range_with_a_stride(x, w):
    for i in range(20, -3, -4):
        x = jnp.sin(w @ x) * i / 10
    return jnp.sum(x**2)


def over_rows(x, w):
    for row in ROWS * w[0, 0]:
        x = jnp.tanh(w @ x + row)
    return jnp.sum(x)


def over_the_columns_of_an_argument(x, w):
    for column in w.T:
        x = jnp.tanh(x + column * x)
    return jnp.sum(x)


def zipped(x, w):
    for i, (row, j) in enumerate(zip(ROWS, range(3, 90, 2)), 2):
        x = jnp.tanh(w @ x + row * i) + 0.1 * j
    return jnp.sum(x)


def backwards(x, w):
    for i, row in reversed(list(enumerate(ROWS))):
        x = jnp.tanh(w @ x + row) + 0.1 * i
    for row in reversed(ROWS):
        x = jnp.sin(x + row)
    for i, row in zip(reversed(range(5)), reversed(ROWS)):
        x = jnp.sin(x * i + row)
    return jnp.sum(x)


def over_a_list_of_arrays(x, w):
    for part in [w[0], 2 * w[1], w[2]]:
        x = jnp.tanh(x + part)
    for pair in [(w[0], 0.1), (w[1], 0.2), (w[2], 0.4)]:
        x = jnp.sin(x + pair[0] * pair[1])
    for value in {"a": w[0], "b": w[1]}.values():
        x = x * value
    return jnp.sum(x)


def over_numbers(x, w):
    for dt in (0.1, 0.2, 0.4, 0.3):
        x = x + dt * jnp.tanh(w @ x)
    for k in [1, 5, 2]:
        x = x * k
    return jnp.sum(x)


def over_a_numpy_array(x, w):
    for row in np.arange(12.0).reshape(4, 3):
        x = jnp.tanh(w @ x + row)
    return jnp.sum(x)


def several_names(x, w):
    y, t, k, total = x * 2, 0.0, 0, 0
    for _ in range(9):
        x, y = y, jnp.sin(w @ x) + y * t
        t += 0.1
        k = k + 1
        total = total + jnp.sum(x)
    return jnp.sum(x * y) * t + k + total


def containers(x, w):
    s = {"pair": (x, 2 * x), "list": [x, x + 1], "settings": None, "count": 0}
    for _ in range(6):
        first, second = s["pair"]
        s["list"][1] = jnp.sin(s["list"][1] + first)
        s = {"pair": (second, jnp.tanh(w @ first)), "list": s["list"], "settings": None, "count": s["count"] + 2}
    return jnp.sum(s["pair"][0] * s["list"][1]) + s["count"]


def in_place(x, w):
    body = Body(x, w @ x)
    history = deque([x, x], maxlen=2)
    other = body
    for _ in range(8):
        body.position = body.position + 0.1 * body.speed / body.mass
        body.speed = body.speed - 0.1 * jnp.sin(body.position) + 0.01 * history[0]
        history.append(body.position)
    assert other is body
    assert (body.name, type(body.mass)) == ("ball", float)
    return jnp.sum(other.position * history[0])


def named_tuples(x, w):
    pair = Pair(x, w @ x)
    for _ in range(8):
        pair = pair._replace(position=pair.position + 0.1 * pair.speed)
        pair = Pair(pair.position, pair.speed - jnp.sin(pair.position))
    return jnp.sum(pair.position)


def objects_that_are_handed_on(x, w):
    model, settings, table = Model(w), Settings(2, 0.5), [1.0, 2.0]
    for _ in range(5):
        x = model.step(x) * settings.scale
        for _ in range(settings.layers):
            x = x + len(table)
    return jnp.sum(x) + model.calls


def functions_with_closures(x, w):
    gain = w[0, 0] * 2

    def rhs(y):
        return jnp.sin(w @ y) * gain

    for _ in range(9):
        k1 = rhs(x)
        k2 = rhs(x + 0.1 * k1)
        x = x + 0.05 * (k1 + k2)
    return jnp.sum(x)


def nested(x, w):
    for i in range(4):
        y = x
        for j in range(3):
            y = jnp.sin(w @ y) + i * j
            for row in ROWS:
                y = y + 0.1 * row * x
        x = x + y
    return jnp.sum(x)


def one_after_another(x, w):
    for _ in range(4):
        x = jnp.sin(w @ x)
    for i in range(5):
        x = jnp.cos(x) + i
    return jnp.sum(x)


def collected(x, w):
    ys, pairs = [x], []
    for i in range(6):
        x = jnp.sin(w @ x)
        ys.append(x * i)
        pairs.append({"sum": jnp.sum(x), "name": "row", "number": 3})
        ys.append(x)
    assert (len(ys), len(pairs)) == (13, 6)
    assert (pairs[2]["name"], pairs[2]["number"]) == ("row", 3)
    return jnp.sum(jnp.stack(ys) ** 2) + sum(pair["sum"] for pair in pairs)


def left_behind(x, w):
    for i in range(6):  # noqa: B007
        new = jnp.sin(w @ x)
        change = jnp.sum((new - x) ** 2)
        both = (new, {"change": change})
        x = new
    return change + jnp.sum(new) + i + both[1]["change"] + jnp.sum(both[0])


def by_settings(x, w, damped=True, skip=False):
    for _ in range(6):
        x = jnp.sin(w @ x)
        if skip:
            continue
        if damped:
            x = 0.9 * x
        else:
            x = 1.1 * x
    else:
        x = x + 1
    return jnp.sum(x)


def left_at_once(x, w, once=True):
    for _ in range(6):
        x = jnp.sin(w @ x)
        if once:
            break
    else:
        x = x * 100
    for _ in range(3):
        x = jnp.cos(x)
        if once:
            return jnp.sum(x)
    return x


def updates(x, w):
    table = jnp.zeros((8, 3))
    for i in range(8):
        table = table.at[i].set(jnp.sin(w @ x) + table[i - 1])
        x = x + 0.1 * table[i]
    return jnp.sum(table**2)


def random_steps(x, w):
    key = jax.random.key(1)
    for i in range(6):
        key, this = jax.random.split(key)
        noise = jax.random.normal(jax.random.fold_in(this, i), (3,))
        x = jnp.sin(w @ x) + noise * x
    return jnp.sum(x)


def gradient_descent(x, w):
    params = {"w": w, "b": x}
    speed = jax.tree.map(jnp.zeros_like, params)
    for _ in range(5):
        error = jax.grad(lambda p: jnp.sum((p["w"] @ x + p["b"] - 1) ** 2))(params)
        speed = jax.tree.map(lambda s, e: 0.9 * s + e, speed, error)
        params = jax.tree.map(lambda p, s: p - 0.05 * s, params, speed)
    return jnp.sum(params["w"] @ params["b"])


def small_functions_in_a_step(x, w):
    for _ in range(4):
        y = jax.vmap(lambda row: row @ x)(w)  # noqa: B023
        x = jax.lax.cond(jnp.sum(y) > 0, lambda: x + y, lambda: x - y)  # noqa: B023
        x = jnp.array([2 * value for value in x])
    return jnp.sum(x)


def small_functions_in_two_loops(x, w):
    for _ in range(4):
        y = jnp.sin(w @ x)
        x = jax.lax.map(lambda value: value * y[0] + x[0], x)  # noqa: B023
    for i in range(3):
        y = x[:2] * i
        x = x + jax.lax.map(lambda value: value + jnp.sum(y), x)  # noqa: B023
    return jnp.sum(x) + jnp.sum(y)


@pb.checkpoint(slots=2)
def inner(x):
    for _ in range(3):
        x = jnp.sin(x)
    return x


def checkpointed_inside(x, w):
    for _ in range(3):
        x = inner(w @ x) * 2
    return jnp.sum(x)


def no_steps(x, w):
    y = x
    for i in range(0):
        y = jnp.sin(x) + i
    for row in ROWS[:0]:
        y = y + row
    for _ in range(1):
        y = y * 2
    return jnp.sum(y * (w @ x))


FOR_LOOPS = [
    over_a_range,
    over_a_range_with_a_stride,
    over_rows,
    over_the_columns_of_an_argument,
    zipped,
    backwards,
    over_a_list_of_arrays,
    over_numbers,
    over_a_numpy_array,
    several_names,
    containers,
    in_place,
    named_tuples,
    objects_that_are_handed_on,
    functions_with_closures,
    nested,
    one_after_another,
    collected,
    left_behind,
    by_settings,
    left_at_once,
    updates,
    random_steps,
    gradient_descent,
    small_functions_in_a_step,
    small_functions_in_two_loops,
    checkpointed_inside,
    no_steps,
]


def until_small(x, w):
    while jnp.linalg.norm(x) > 0.05:
        x = 0.8 * jnp.sin(w @ x)
    return jnp.sum(x)


def with_a_counter(x, w, most=11):
    k, best = 0, jnp.inf
    while jnp.max(jnp.abs(x)) > 1e-3 and not k >= most:
        x = 0.9 * jnp.sin(x) + 0.01 * (w @ x)
        best = jnp.minimum(best, jnp.sum(x))
        k += 1
    else:
        k = k + 1
    return jnp.sum(x) * k + best


def named_in_the_head(x, w):
    k = 0
    while 0.01 < (size := jnp.sum(x**2)) < 100 or k < 2:
        x = 0.8 * x + 0.01 * size
        k += 1
    return jnp.sum(x) * size + 0 * w[0, 0]


def while_in_for(x, w):
    for i in range(3):
        r = jnp.float32(10.0)
        while r > 1.5:
            x = jnp.sin(w @ x) + 0.1 * i
            r = r * 0.6
        x = x * r
    return jnp.sum(x)


def kept_from_the_last_step(x, w):
    r = 0.0
    while jnp.sum(x**2) > 0.1:
        r = jnp.sum(x)
        x = 0.7 * x
    return r * jnp.sum(x) + 0 * w[0, 0]


def until_it_says_so(x, w):
    done, last = False, 1e9
    while not done:
        last = jnp.sum(x)
        x = 0.8 * x + 0.01 * (w @ x)
        done = jnp.abs(jnp.sum(x) - last) < 1e-2
    return jnp.sum(x) * last


WHILE_LOOPS = [
    until_small,
    with_a_counter,
    named_in_the_head,
    while_in_for,
    kept_from_the_last_step,
    until_it_says_so,
]


def until_it_settles(x, w):
    for k in range(50):  # noqa: B007
        new = 0.5 * jnp.cos(x) + 0.1 * (w @ x)
        change = jnp.max(jnp.abs(new - x))
        if change < 1e-3:
            break
        x = new
    return jnp.sum(x) * k + jnp.sum(new) + change


def never_left(x, w):
    for row in ROWS:
        x = jnp.sin(w @ x) + row
        if jnp.sum(x) > 100 and jnp.sum(x) < 200:
            break
        x = x * 1.1
    return jnp.sum(x)


def forever(x, w):
    k, last = 0, x
    while True:
        x = 0.7 * x
        k += 1
        if not jnp.max(x) >= 0.01 or k > 30:
            break
        last = x
        x = x + 0.001 * (w @ x)
    return jnp.sum(x) * k + jnp.sum(last)


def left_before_what_has_no_derivative(x, w):
    for row in jnp.stack([x, w[0], 0 * x, x]):
        size = jnp.sum(row**2)
        if size == 0:
            break
        x = x + row / jnp.sqrt(size)
    return jnp.sum(x)


def two_exits_of_an_object(x, w):
    body = {"x": x, "k": 0}
    for _ in range(20):
        if jnp.sum(body["x"]) < 0.05:
            break
        body["x"] = body["x"] * 0.8 + 0.01 * (w @ x)
        if jnp.max(body["x"]) < 0.2:
            break
        body["k"] += 1
        body["x"] = body["x"] - 0.001
    return jnp.sum(body["x"]) * (1 + body["k"])


def left_inside(x, w):
    for i in range(3):
        k = 0
        while k < 9:
            k += 1
            x = jnp.sin(x) + 0.01 * (w @ x)
            if x[2] < 0.4 - 0.05 * i:
                break
        x = x * 1.5
    return jnp.sum(x)


def named_in_an_exit(x, w):
    for _ in range(9):
        x = 0.7 * x + 0.01 * (w @ x)
        if (size := jnp.sum(x**2)) < 0.1:
            break
        x = x + 0.01 * size
    return jnp.sum(x) * size


def told_at_an_exit(x, w):
    settled, k = False, 0
    for i in range(30):
        new = 0.5 * jnp.cos(x) + 0.1 * (w @ x)
        if jnp.max(jnp.abs(new - x)) < 1e-3 or i > 25:
            settled, last = True, new * 2
            k += 100
            break
        last = x
        x = new
        k += 1
    return jnp.sum(x) * k + jnp.where(settled, jnp.sum(last), 0.0)


LEFT_LOOPS = [
    until_it_settles,
    told_at_an_exit,
    named_in_an_exit,
    never_left,
    forever,
    left_before_what_has_no_derivative,
    two_exits_of_an_object,
    left_inside,
]


def checkpointed(f, **budget):
    return pb.checkpoint(**(budget or {"slots": 3}))(f)


@pytest.mark.parametrize("f", [*FOR_LOOPS, *WHILE_LOOPS, *LEFT_LOOPS], ids=lambda f: f.__name__)
def test_value_and_gradient_are_those_of_the_plain_function(f):
    wanted = jax.value_and_grad(f, (0, 1))(X, W)
    assert_same(jax.jit(jax.value_and_grad(checkpointed(f), (0, 1)))(X, W), wanted)


@pytest.mark.parametrize("f", [containers, collected, until_small], ids=lambda f: f.__name__)
def test_without_jit(f):
    assert_same(jax.value_and_grad(checkpointed(f, slots=2), (0, 1))(X, W), jax.value_and_grad(f, (0, 1))(X, W))


def test_plain_arrays_run_as_plain_python():
    seen = []

    def look(x, w):
        for i in range(3):
            x = jnp.sin(w @ x) + seen_index(i)
        return jnp.sum(x)

    def seen_index(i):
        seen.append(type(i))
        return i

    assert_same(checkpointed(look)(X, W), look(X, W))
    assert seen == [int] * 6


@pytest.mark.parametrize("f", [several_names, left_behind, with_a_counter, forever], ids=lambda f: f.__name__)
def test_double_precision(f):
    with jax.enable_x64(True):
        x, w = jnp.asarray(np.asarray(X, np.float64)), jnp.asarray(np.asarray(W, np.float64))
        wanted = jax.value_and_grad(f, (0, 1))(x, w)
        found = jax.jit(jax.value_and_grad(checkpointed(f), (0, 1)))(x, w)
        assert_same(found, wanted, rtol=1e-12)
        assert [a.dtype for a in jax.tree.leaves(found)] == [a.dtype for a in jax.tree.leaves(wanted)]
        single = jax.eval_shape(jax.grad(checkpointed(f)), X, W)
        assert single.dtype == np.float32


@pytest.mark.parametrize("f", [collected, in_place], ids=lambda f: f.__name__)
def test_transformations_are_those_of_the_plain_function(f):
    g = checkpointed(f)
    v = jnp.array([1.0, -0.5, 0.25])
    assert_same(jax.jvp(lambda x: g(x, W), (X,), (v,)), jax.jvp(lambda x: f(x, W), (X,), (v,)))
    assert_same(jax.jit(jax.hessian(g))(X, W), jax.hessian(f)(X, W), rtol=1e-4)
    xs = jnp.stack([X, 2 * X, -X])
    batched = jax.jit(jax.vmap(jax.grad(g), (0, None)))(xs, W)
    assert_same(batched, jax.vmap(jax.grad(f), (0, None))(xs, W))


def test_a_while_loop_in_a_batch_stops_for_each_member():
    xs = jnp.stack([X, 4 * X, 0.1 * X])
    found = jax.jit(jax.vmap(jax.grad(checkpointed(until_small)), (0, None)))(xs, W)
    assert_same(found, jnp.stack([jax.grad(until_small)(x, W) for x in xs]))
    v = jnp.array([1.0, -0.5, 0.25])
    assert_same(
        jax.jvp(lambda x: checkpointed(until_small)(x, W), (X,), (v,)),
        jax.jvp(lambda x: until_small(x, W), (X,), (v,)),
    )


def test_bounds_may_be_traced():
    def f(x, start, stop):
        y = x
        for i in range(start, stop, 2):
            y = jnp.sin(y) + 0.01 * i
        for _ in range(stop):
            y = y * 1.1
        return jnp.sum(y)

    found = jax.jit(jax.value_and_grad(checkpointed(f)))
    for bounds in [(3, 12), (0, 7), (5, 5), (9, 2)]:
        assert_same(found(X, *bounds), jax.value_and_grad(f)(X, *bounds))

    def last(x, n):
        r = 0.0
        for i in range(n):
            r = jnp.sum(x) * i
            x = jnp.sin(x)
        return r + jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(last)))
    for n in (0, 1, 6):
        assert_same(found(X, n), jax.value_and_grad(last)(X, n))

    def down(x, n):
        for i in range(n, 2, -3):
            x = jnp.sin(x) * i
        return jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(down)))
    for n in (17, 3, 2, -4):
        assert_same(found(X, n), jax.value_and_grad(down)(X, n))


def test_a_break_may_come_at_any_step():
    found = jax.jit(jax.value_and_grad(checkpointed(two_exits_of_an_object), (0, 1)))
    for x in (X, 3 * X, 0.2 * X, -X):
        assert_same(found(x, W), jax.value_and_grad(two_exits_of_an_object, (0, 1))(x, W))
    xs = jnp.stack([X, 2 * X, 0.1 * X])
    batched = jax.jit(jax.vmap(jax.grad(checkpointed(until_it_settles)), (0, None)))(xs, W)
    assert_same(batched, jnp.stack([jax.grad(until_it_settles)(x, W) for x in xs]))


def test_a_break_in_a_range_of_traced_bounds():
    def f(x, n):
        for i in range(n):
            x = jnp.sin(x) + 0.01 * i
            if x[0] > 0.35:
                break
        return jnp.sum(x)

    found = jax.jit(jax.value_and_grad(checkpointed(f)))
    for n in (0, 3, 20):
        assert_same(found(X, n), jax.value_and_grad(f)(X, n))


CALLS = Calls()


def counting_to_a_break(x, limit):
    for _ in range(1000):
        CALLS.mark(x)
        x = x + 1.0
        if x[0] >= limit:
            break
        CALLS.mark(x)
    return jnp.sum(x)


def counting(x, n):
    for _ in range(n):
        CALLS.mark(x)
        x = jnp.sin(1.1 * x)
    return jnp.sum(x)


def counting_until(x, limit):
    while x[0] < limit:
        CALLS.mark(x)
        x = x + jnp.exp(-x) * 0 + 1.0
    return jnp.sum(x)


@pytest.mark.parametrize(("steps", "slots"), [(50, 7), (100, 5), (10, 3)])
def test_the_gradient_evaluates_the_step_as_often_as_the_best_schedule(steps, slots):
    g = jax.jit(jax.grad(functools.partial(checkpointed(counting, slots=slots), n=steps)))
    # One more than of a plan that gives no value: the sweep goes to the end.
    assert CALLS.of(g, X) == pb.Revolve(steps, slots).cost.forwards + 1


def test_a_while_loop_is_checkpointed_online():
    g = jax.jit(jax.grad(checkpointed(counting_until, slots=5)))
    assert CALLS.of(g, jnp.zeros(3), 100.0) == pb.Online(5).ended(100).cost.forwards


def test_a_loop_with_a_break_evaluates_each_half_of_its_step_as_often_as_the_online_plan():
    g = jax.jit(jax.grad(checkpointed(counting_to_a_break, slots=5)))
    forwards = pb.Online(5).ended(100).cost.forwards
    last = 2  # the second half of the last step runs neither in the sweep nor when the step is reversed
    assert CALLS.of(g, jnp.zeros(3), 100.0) == 2 * forwards - last


def smooth(x):
    for _ in range(500):
        x = jnp.tanh(x)
    return jnp.sum(x)


def temp(f, x):
    return jax.jit(jax.grad(f)).lower(x).compile().memory_analysis().temp_size_in_bytes


def test_the_program_holds_slots_and_not_steps():
    x = jnp.ones(4096)
    assert temp(checkpointed(smooth, slots=8), x) <= (8 + 3) * x.nbytes
    assert temp(checkpointed(smooth, schedule=pb.StoreAll(500)), x) >= 500 * x.nbytes


def test_memory_bounds_what_the_program_takes():
    x = jnp.ones(4096)
    assert temp(checkpointed(smooth, memory="400kB"), x) <= 400_000
    with pytest.raises(pb.BudgetError, match="at least"):
        jax.grad(checkpointed(smooth, memory="10kB"))(x)


def two_deep(x):
    for _ in range(20):
        y = x
        for _ in range(25):
            y = jnp.tanh(y)
        x = x + y
    return jnp.sum(x)


def test_memory_is_shared_with_inner_loops():
    x = jnp.ones(4096)
    gradient = jax.jit(jax.grad(checkpointed(two_deep, memory="300kB"))).lower(x).compile()
    assert 200_000 < gradient.memory_analysis().temp_size_in_bytes <= 300_000
    assert_same(gradient(x), jax.grad(two_deep)(x))


def long(x, n):
    s, k = 0.0, 0
    for i in range(n):
        x = jnp.sin(x) * i
        s = s + jnp.sum(x)
        k += 1
    while jnp.sum(x) > 1 and k < n:
        x = x / 2
        k += 1
    return s + jnp.sum(x)


def test_the_program_is_as_long_for_any_number_of_steps():
    def traced(n):
        return len(str(jax.make_jaxpr(functools.partial(checkpointed(long, slots=5), n=n))(X)).splitlines())

    assert traced(100) == traced(100_000)
    jaxprs = [jax.make_jaxpr(jax.grad(functools.partial(checkpointed(long, slots=5), n=n)))(X) for n in (300, 30_000)]
    assert len(jaxprs[0].eqns) == len(jaxprs[1].eqns) < 60


def test_a_schedule_is_followed():
    assert_same(jax.grad(checkpointed(over_a_range, schedule=pb.Periodic(17, 4)))(X, W), jax.grad(over_a_range)(X, W))
    with pytest.raises(ValueError, match="16 steps and the loop has 17"):
        jax.grad(checkpointed(over_a_range, schedule=pb.Revolve(16, 3)))(X, W)
    with pytest.raises(ValueError, match="Online"):
        jax.grad(checkpointed(over_a_range, schedule=pb.Online(3)))(X, W)
    assert_same(jax.grad(checkpointed(until_small, schedule=pb.Online(3)))(X, W), jax.grad(until_small)(X, W))
    with pytest.raises(ValueError, match="unknown length takes an Online schedule"):
        jax.grad(checkpointed(until_small, schedule=pb.Revolve(10, 3)))(X, W)
    with pytest.raises(ValueError, match="break may end takes an Online schedule"):
        jax.grad(checkpointed(until_it_settles, schedule=pb.Revolve(50, 3)))(X, W)


def test_explain_says_what_the_loops_will_take():
    text = str(pb.explain(checkpointed(one_after_another, slots=3), X, W))
    assert "steps        4 of 12 B each" in text
    assert f"forwards     {pb.Revolve(4, 3).cost.forwards + 1} with 3 slots" in text
    assert text.count("checkpointed yes") == 2
    loop = pb.explain(checkpointed(smooth, memory="400kB"), jnp.ones(4096)).loops[0]
    assert loop.steps == 500
    assert 300_000 < loop.peak <= 400_000
    calls = functools.partial(checkpointed(counting, slots=loop.slots), n=500)
    assert loop.forwards == CALLS.of(jax.jit(jax.grad(calls)), X)
    assert "as many as it takes" in str(pb.explain(until_small, X, W))
    assert "decides by a value" in str(pb.explain(breaks, X))
    assert "slots" not in str(pb.explain(breaks))


def test_verifying_is_nothing_to_do_or_refused():
    wanted = jax.grad(over_a_range)(X, W)
    for verify in ("last", False):
        assert_same(jax.grad(checkpointed(over_a_range, slots=3, verify=verify))(X, W), wanted)
    with pytest.raises(ValueError, match="compiled JAX program"):
        jax.grad(checkpointed(over_a_range, verify="all"))(X, W)


def breaks(x):
    for _ in range(5):
        x = jnp.sin(x)
        if x[0] < 0.1:  # here
            x = 2 * x
            print("done")
            break
    return jnp.sum(x)


def breaks_and_has_an_else(x):
    for _ in range(5):  # here
        x = jnp.sin(x)
        if x[0] < 0.1:
            break
    else:
        x = x * 2
    return jnp.sum(x)


def breaks_and_collects(x):
    ys = []
    for _ in range(5):  # here
        x = jnp.sin(x)
        ys.append(x)
        if x[0] < 0.1:
            break
    return sum(ys)[0]


def binds_in_the_logic_of_an_exit(x):
    for k in range(5):
        x = jnp.sin(x)
        if (size := jnp.sum(x)) < 0.1 and k > 1:  # here
            break
    return jnp.sum(x) * size


def changes_an_object_before_it_breaks(x):
    ys = [x, x]
    for _ in range(5):  # here
        x = jnp.sin(x)
        ys[0] = x
        if x[0] < 0.1:
            x = ys.pop()
            break
    return jnp.sum(x) + jnp.sum(ys[0])


def breaks_before_it_binds(x):
    for _ in range(5):  # here
        x = jnp.sin(x)
        if x[0] < 0.1:
            break
        last = x
    return jnp.sum(last)


def breaks_and_binds(x):
    while (size := jnp.sum(x)) > 0.01:  # here
        x = x / 2
        if jnp.max(x) < 0.1:
            break
    return size


def returns(x):
    for _ in range(5):
        if jnp.sum(x) < 0:  # here
            return x
        x = x - 1
    return jnp.sum(x)


def decides(x):
    for i in range(5):
        x = x * 2 if i > 2 else x  # here
    return jnp.sum(x)


def returns_from_a_loop_without_end(x):
    while True:
        x = x / 2
        if jnp.max(x) < 0.1:  # here
            return jnp.sum(x)


def never_ends(x):
    while True:  # here
        x = x / 2
    return jnp.sum(x)


def asks_for_a_constant(x, going=True):
    while going:  # here
        x = x / 2
    return jnp.sum(x)


def asks_an_array(x):
    while x > 0.1:  # here
        x = x / 2
    return jnp.sum(x)


def grows(x):
    y = x[:1]
    for _ in range(4):  # here
        y = jnp.concatenate([y, x])
    return jnp.sum(y)


def becomes_an_array(x):
    s = 0.0
    for _ in range(4):  # here
        s = s + x
    return jnp.sum(s)


def changes_its_type(x):
    k = jnp.int32(0)
    for _ in range(4):  # here
        k = k + jnp.sum(x)
    return k


def becomes_an_integer(x):
    k = 0.5
    for _ in range(4):  # here
        x = x * k
        k = jnp.argmax(x)
    return jnp.sum(x)


def grows_a_list(x):
    ys = [x]
    for _ in range(4):  # here
        ys.append(jnp.sin(ys[-1]))
    return sum(ys)[0]


def begins_with_nothing(x):
    best = None
    for _ in range(4):  # here
        x = jnp.sin(x)
        best = x if best is None else jnp.minimum(best, x)
    return jnp.sum(best)


def changes_a_word(x):
    mode = "a"
    for _ in range(4):  # here
        x = jnp.sin(x) if mode == "a" else x
        mode = "b"
    return jnp.sum(x)


def takes_an_element_of_a_list(x):
    gains = [1.0, 2.0, 3.0]
    for i in range(3):
        x = x * gains[i]  # here
    return jnp.sum(x)


def loops_up_to_the_index(x):
    for i in range(3):
        for _ in list(range(i)):  # here
            x = jnp.sin(x)
    return jnp.sum(x)


def formats(x):
    for i in range(3):
        x = x * len(f"{i:03d}")  # here
    return jnp.sum(x)


def makes_a_number(x):
    for _ in range(3):
        x = x * float(x[0])  # here
    return jnp.sum(x)


def selects(x):
    for _ in range(3):
        x = x + jnp.sum(x[x > 0])  # here
    return jnp.sum(x)


def uses_numpy(x):
    for _ in range(3):
        x = np.sin(x)  # here
    return jnp.sum(x)


def writes_into_an_array(x):
    for i in range(3):
        x[i] = 0.0  # here
    return jnp.sum(x)


def writes_into_a_numpy_array(x):
    table = np.zeros(3)
    for i in range(3):
        table[i] = 1.0  # here
        x = x * 2
    return jnp.sum(x) + table[0]


def fill(table, x):
    table[0] += 1  # inside
    return x * table[0]


def hands_on_a_numpy_array(x):
    table = np.zeros(3)
    for _ in range(3):
        x = fill(table, x)
    return jnp.sum(x)


def draws(x):
    rng = np.random.default_rng(0)
    for _ in range(3):  # here
        x = x + rng.normal()
    return jnp.sum(x)


def draws_from_everybodys(x):
    for _ in range(3):  # here
        x = x + np.random.normal()
    return jnp.sum(x)


def moves_on(x):
    numbers = iter([1.0, 2.0, 3.0])
    for _ in range(3):  # here
        x = x * next(numbers)
    return jnp.sum(x)


def collects_for_an_unknown_time(x):
    ys = []
    while jnp.sum(x) > 0.1:  # here
        x = x / 2
        ys.append(x)
    return sum(ys)[0]


def leaves_what_may_not_be(x):
    while jnp.sum(x) > 0.1:  # here
        r = jnp.sum(x)
        x = x / 2
    return r


def over_unlike_arrays(x):
    for w in [x, x[:2]]:  # here
        x = x + jnp.sum(w)
    return jnp.sum(x)


def over_words(x):
    for word in ["a", "bc"]:  # here
        x = x * len(word)
    return jnp.sum(x)


def over_keys(x):
    table = {"a": x, "b": 2 * x}
    for key, value in table.items():  # here
        x = x + value * len(key)
    return jnp.sum(x)


def over_a_generator(x):
    for k in (2 * k for k in range(3)):  # here
        x = x * k
    return jnp.sum(x)


def changes_the_items(x):
    bodies = [Body(x, x), Body(2 * x, x)]
    for body in bodies:  # here
        body.position = body.position + x
    return jnp.sum(bodies[0].position)


def swaps(x):
    a, b = [x], [2 * x]
    for _ in range(3):  # here
        a, b = b, a
    return jnp.sum(a[0])


def begins_with_no_array(x):
    y = 0.0
    for i in range(3):  # here
        y = jnp.sin(y + i)
    return jnp.sum(x) * y


def collects_in_a_range_of_traced_bounds(x):
    ys = []
    n = jnp.argmax(x)
    for _ in range(n):  # here
        ys.append(x)
    return jnp.sum(x)


def zips_traced_bounds(x):
    n = jnp.argmax(x)
    for _, y in zip(range(n), x):  # here
        x = x + y
    return jnp.sum(x)


def appends_what_it_changes(x):
    bodies, body = [], Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        bodies.append(body)
    return jnp.sum(bodies[0].position)


def names_it_twice(x):
    body = Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        last = body
    return jnp.sum(last.position)


def lets_go(x):
    first = body = Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        body = Body(body.position, x)
    return jnp.sum(first.position) + jnp.sum(body.position)


def changes_the_list_that_it_runs_over(x):
    xs = [x, 2 * x, 3 * x]
    for y in xs:  # here
        xs[2] = xs[2] + y
    return jnp.sum(xs[2])


REFUSED = [
    (changes_the_list_that_it_runs_over, "changes an object that it runs over"),
    (appends_what_it_changes, "appends an object to a list and goes on changing it"),
    (names_it_twice, "two names stand for one object"),
    (lets_go, "changes an object and then lets go of it"),
    (breaks, "decides by a value.*if …: break"),
    (breaks_and_has_an_else, "its else depends on a break"),
    (breaks_and_collects, "appends to ys, and has a break that is traced"),
    (binds_in_the_logic_of_an_exit, "decides by a value"),
    (changes_an_object_before_it_breaks, "before a traced break changes an object"),
    (breaks_before_it_binds, "last has no value if a break ends the first step"),
    (breaks_and_binds, "its head binds a name"),
    (returns, "decides by a value"),
    (decides, "decides by a value.*jnp.where"),
    (returns_from_a_loop_without_end, "decides by a value"),
    (never_ends, "nothing that the loop changes decides when it ends"),
    (asks_for_a_constant, "nothing that the loop changes decides when it ends"),
    (asks_an_array, "3 truth values.*jnp.all"),
    (grows, r"y is float32\[1\] before a step and float32\[4\] after it"),
    (becomes_an_array, r"s is float32\[\] before a step and float32\[3\] after it"),
    (changes_its_type, r"k is int32\[\] before a step and float32\[\] after it.*astype"),
    (becomes_an_integer, r"k is float32\[\] before a step and int32\[\] after it"),
    (grows_a_list, "ys has another structure after a step .a list of 2. than before it .a list of 1."),
    (begins_with_nothing, r"best is None before a step and an array float32\[3\] after it"),
    (changes_a_word, "mode is 'a' before a step and 'b' after it"),
    (takes_an_element_of_a_list, r"as a Python int.*jnp.stack"),
    (loops_up_to_the_index, "as a Python int.*pebbling.jax.fori_loop"),
    (formats, "formats a value"),
    (makes_a_number, r"asks for the number.*keep it an array"),
    (selects, "selects by a mask"),
    (uses_numpy, "to NumPy.*jax.numpy"),
    (writes_into_an_array, r"x = x.at\[i\].set"),
    (writes_into_a_numpy_array, r"x = x.at\[i\].set"),
    (draws, "draws from rng .Generator.*jax.random"),
    (draws_from_everybodys, "global random generator"),
    (moves_on, "numbers is an iterator"),
    (collects_for_an_unknown_time, "appends to ys.*known only when it ends"),
    (leaves_what_may_not_be, "r has no value before the loop: give it one"),
    (over_unlike_arrays, "different types"),
    (over_words, "no arrays, such as 'a'.*unrolls"),
    (over_keys, "keys differ"),
    (over_a_generator, "runs over a generator"),
    (changes_the_items, "changes the items"),
    (swaps, "change places"),
    (begins_with_no_array, "from none that it names"),
    (collects_in_a_range_of_traced_bounds, "appends to ys.*bounds that are traced"),
    (zips_traced_bounds, "range of traced bounds with other items"),
]


@pytest.mark.parametrize(("f", "reason"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_compiled_is_refused_with_file_and_line(f, reason):
    lines, first = inspect.getsourcelines(f)
    line = first + next(place for place, text in enumerate(lines) if "# here" in text)
    with pytest.raises(pb.SourceError, match=f"(?s)test_source.py:{line}: .*{reason}"):
        jax.jit(jax.grad(checkpointed(f)))(X)


def test_the_line_is_that_of_a_function_in_the_same_file():
    line = inspect.getsourcelines(fill)[1] + 1
    with pytest.raises(pb.SourceError, match=f"test_source.py:{line}: .*writes into a NumPy array"):
        jax.grad(checkpointed(hands_on_a_numpy_array))(X)


def test_the_error_of_jax_is_the_cause():
    with pytest.raises(pb.SourceError) as caught:
        jax.grad(checkpointed(breaks))(X)
    assert isinstance(caught.value.__cause__, jax.errors.TracerBoolConversionError)


def test_errors_of_the_program_stay_what_they_are():
    def f(x):
        for _ in range(3):
            x = x + undefined(x)
        return jnp.sum(x)

    def undefined(x):
        raise LookupError("no such table")

    def caught(x):
        try:
            for _ in range(3):
                x = x + undefined(x)
        except LookupError:
            x = 2 * x
        return jnp.sum(x)

    with pytest.raises(LookupError, match="no such table"):
        jax.grad(checkpointed(f))(X)
    assert_same(jax.grad(checkpointed(caught))(X), 2 * jnp.ones(3))


def test_a_loop_of_numpy_arrays_names_those_of_jax():
    def f(x):
        return run(lambda item, state, consts: (None, state, (), ()), range(3), [x]).state[0]

    with pytest.raises(pb.PebblingError, match=r"pebbling\.jax\.fori_loop"):
        jax.grad(f)(1.0)


def test_arrays_are_unlocked_again():
    table = np.ones(3)

    def f(x):
        for _ in range(3):
            x = x * table
        return jnp.sum(x)

    jax.grad(checkpointed(f))(X)
    with pytest.raises(pb.SourceError):
        jax.grad(checkpointed(hands_on_a_numpy_array))(X)
    table[0] = 2.0
    assert table[0] == 2.0
